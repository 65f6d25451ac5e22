#include "python/models_folder.h"

#include <cstdlib>

namespace firstlight {

std::filesystem::path models_folder() {
  if (const char* given = std::getenv("FIRSTLIGHT_MODELS"); given != nullptr && *given != '\0') return given;
  std::error_code ignored;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  std::filesystem::path installed = program.parent_path() / "../share/firstlight/models";
  if (!program.empty() && std::filesystem::is_directory(installed, ignored)) return installed;
  return FL_MODELS_DIR;
}

}  // namespace firstlight
