#include "text/tokenizer.h"

#include <array>

#include "base/mapped_file.h"
#include "text/tiktoken.h"
#include "text/token_start.h"
#include "text/tokenizer_json.h"

namespace firstlight {
namespace {

// Files of tokenizer kinds that have no loader, for the message.
constexpr std::array<std::string_view, 4> kOtherKinds = {"tokenizer.model", "vocab.json", "merges.txt",
                                                         "vocab.txt"};

bool is_there(const std::filesystem::path& path) { return name_is_taken(path.string()); }

}  // namespace

Result<std::unique_ptr<Tokenizer>> load_tokenizer(const std::filesystem::path& folder,
                                                  std::optional<std::int64_t> vocab_size) {
  if (is_there(folder / "tiktoken.model")) {
    return load_tiktoken(folder / "tiktoken.model", folder / "tokenizer_config.json", vocab_size);
  }
  if (is_there(folder / "tokenizer.json")) {
    return load_tokenizer_json(folder / "tokenizer.json", folder / "tokenizer_config.json");
  }
  std::string found;
  for (const std::string_view name : kOtherKinds) {
    if (!is_there(folder / name)) continue;
    if (!found.empty()) found += ", ";
    found += name;
  }
  return Error{folder.string() +
               ": no tokenizer that can be loaded: expected tokenizer.json or tiktoken.model, found " +
               (found.empty() ? "no tokenizer file" : found)};
}

std::string token_bytes(const Tokenizer& tokenizer, std::span<const std::int32_t> ids) {
  TokenStart start(tokenizer);
  std::string bytes;
  for (const std::int32_t id : ids) start.append(id, bytes);
  return bytes;
}

}  // namespace firstlight
