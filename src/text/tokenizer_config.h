// What tokenizer_config.json says of the tokens beside the ordinary vocabulary.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace firstlight {

/// A token beside the ordinary vocabulary, as tokenizer_config.json and tokenizer.json describe it.
struct AddedToken {
  std::int32_t id = 0;
  std::string content;       // valid UTF-8, 1 … 1024 bytes
  bool special = false;      // "skip special tokens" decoding leaves it out
  bool single_word = false;  // not inside a longer word
  bool lstrip = false;       // takes in the white space before it
  bool rstrip = false;       // takes in the white space after it
  bool normalized = false;   // looked for in the normalised text
};

struct TokenizerConfig {
  std::string tokenizer_class;
  std::optional<std::vector<AddedToken>> added;  // added_tokens_decoder, by ascending id
  std::optional<std::string> bos_token;
  std::optional<std::string> eos_token;
  std::optional<bool> add_bos_token;
  std::vector<std::string> named;  // bos, eos, unk, pad and additional special tokens: special by role
};

/// The members of `value` but for the id. `field` begins messages.
Result<AddedToken> parse_added_token(const nlohmann::ordered_json& value, std::int32_t id,
                                     const std::string& field);

/// `name` is the file's name for messages. Fields that concern other layers (chat_template,
/// model_max_length …) are not looked at; those read here have their types checked.
Result<TokenizerConfig> parse_tokenizer_config(std::string_view text, const std::string& name);

}  // namespace firstlight
