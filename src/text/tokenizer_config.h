// What tokenizer_config.json says of the tokens beside the ordinary vocabulary.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace firstlight {

struct AddedToken {
  std::int32_t id = 0;
  std::string content;   // valid UTF-8, 1 … 1024 bytes
  bool special = false;  // "skip special tokens" decoding leaves it out
};

struct TokenizerConfig {
  std::string tokenizer_class;
  std::vector<AddedToken> added;  // added_tokens_decoder, by ascending id
  std::optional<std::string> eos_token;
  std::vector<std::string> named;  // bos, eos, unk, pad and additional special tokens: special by role
};

/// `name` is the file's name for messages. Fields that concern other layers (chat_template,
/// model_max_length …) are not looked at; those read here have their types checked.
Result<TokenizerConfig> parse_tokenizer_config(std::string_view text, const std::string& name);

}  // namespace firstlight
