#include "cli/tokenizer_folder.h"

#include <cstdint>
#include <filesystem>
#include <optional>

#include "base/mapped_file.h"
#include "checkpoint/config.h"

namespace firstlight {
namespace {

/// The number of the model's vocabulary, which multi-modal models keep one level down.
std::optional<std::int64_t> vocab_size_of(const nlohmann::ordered_json& config) {
  const auto found = config.find("vocab_size");
  if (found != config.end() && found->is_number_integer()) return found->get<std::int64_t>();
  const auto text = config.find("text_config");
  if (text != config.end() && text->is_object()) return vocab_size_of(*text);
  return std::nullopt;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> open_tokenizer(const std::string& folder) {
  const std::filesystem::path path = folder;
  std::optional<std::int64_t> vocab_size;
  if (name_is_taken((path / "config.json").string())) {
    FL_ASSIGN(const auto config, read_config((path / "config.json").string()));
    vocab_size = vocab_size_of(config);
  }
  return load_tokenizer(path, vocab_size);
}

}  // namespace firstlight
