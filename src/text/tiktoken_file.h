// The file tiktoken.model: one "base64 rank" line for each token.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/vocabulary.h"

namespace firstlight {

/// Strict standard base64 with padding; nothing for any other text.
std::optional<std::string> decode_base64(std::string_view text);

/// Lines may come in any order and blank ones are skipped; the ranks must be 0 … count - 1, each once.
/// `name` is the file's name for messages. Uses memory in proportion to the text.
Result<Vocabulary> parse_tiktoken_file(std::string_view text, const std::string& name);

}  // namespace firstlight
