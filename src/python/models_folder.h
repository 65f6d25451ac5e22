// Where the Python files of the engine are: model files, and chat formats in its subfolder chat/.
#pragma once

#include <filesystem>

namespace firstlight {

/// FIRSTLIGHT_MODELS, or where this build or installation keeps them.
std::filesystem::path models_folder();

}  // namespace firstlight
