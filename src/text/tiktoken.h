// Kimi's tokenizer (tiktoken.model + tokenizer_config.json): byte-level BPE, Kimi's split pattern, and
// special tokens that follow the ordinary ones. README.md lists its traps.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/tokenizer.h"

namespace firstlight {

/// The ids after the ranks, up to `vocab_size` (without it: 256 of them), are special. Those that the
/// config does not name are "<|reserved_token_{id}|>".
Result<std::unique_ptr<Tokenizer>> load_tiktoken(const std::filesystem::path& model,
                                                 const std::filesystem::path& config,
                                                 std::optional<std::int64_t> vocab_size = std::nullopt);

/// A file's contents and the name that messages give it.
struct NamedText {
  std::string_view text;
  std::string name;
};

/// The same from memory.
Result<std::unique_ptr<Tokenizer>> make_tiktoken(const NamedText& model, const NamedText& config,
                                                 std::optional<std::int64_t> vocab_size = std::nullopt);

}  // namespace firstlight
