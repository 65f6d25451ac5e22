// The tokenizer that tokenizer.json describes: byte-pair encoding of bytes (GPT-2, Llama 3, Qwen, DeepSeek …)
// or of characters with bytes as a last resort (Llama 2, Gemma …). README.md lists its traps.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "base/result.h"
#include "text/tiktoken.h"
#include "text/tokenizer.h"

namespace firstlight {

/// tokenizer_config.json need not be there. Where it is, its added_tokens_decoder adds and changes added
/// tokens, add_bos_token decides whether a text begins with bos_token, and the tokens it names are special.
Result<std::unique_ptr<Tokenizer>> load_tokenizer_json(const std::filesystem::path& file,
                                                       const std::filesystem::path& config);

/// The same from memory.
Result<std::unique_ptr<Tokenizer>> make_tokenizer_json(const NamedText& file,
                                                       const std::optional<NamedText>& config = std::nullopt);

}  // namespace firstlight
