#include "text/tokenizer_config.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/json_limits.h"

namespace firstlight {
namespace {

using Json = nlohmann::ordered_json;

// The longest known special token has 40 bytes; bounds the work of looking for them in text.
constexpr std::size_t kMaxContent = 1024;
// Real files have a few KB. 65,536 added tokens (the most a vocabulary here can have) of eight values each
// still fit, and a lying file costs at most 100 MB while it is read.
constexpr JsonLimits kLimits = {.max_bytes = std::size_t{1} << 24, .max_depth = 32, .max_values = 1U << 20};

/// A token is given as its text or as an object with "content"; null and absence mean none.
Result<std::optional<std::string>> token_text(const Json& value, const std::string& field) {
  if (value.is_null()) return std::optional<std::string>();
  if (value.is_string()) return std::optional(value.get<std::string>());
  if (value.is_object()) {
    const auto content = value.find("content");
    if (content != value.end() && content->is_string()) return std::optional(content->get<std::string>());
  }
  return Error{field + ": expected a string or an object with \"content\""};
}

Result<bool> flag(const Json& object, const char* key, const std::string& field) {
  const auto found = object.find(key);
  if (found == object.end()) return false;
  if (!found->is_boolean()) return Error{field + "." + key + ": expected true or false"};
  return found->get<bool>();
}

Result<std::int32_t> id_of_key(const std::string& key, const std::string& field) {
  std::int32_t id = -1;
  const auto parsed = std::from_chars(key.data(), key.data() + key.size(), id);
  // Written back it must be the same text: no sign, no leading zero, nothing behind it.
  if (parsed.ec != std::errc{} || id < 0 || std::to_string(id) != key) {
    return Error{field + ": the key is not an id from 0 to 2147483647"};
  }
  return id;
}

}  // namespace

Result<AddedToken> parse_added_token(const Json& value, std::int32_t id, const std::string& field) {
  if (!value.is_object()) return Error{field + ": expected an object"};
  AddedToken token;
  token.id = id;
  const auto content = value.find("content");
  if (content == value.end() || !content->is_string()) return Error{field + ".content: expected a string"};
  token.content = content->get<std::string>();
  if (token.content.empty() || token.content.size() > kMaxContent) {
    return Error{field + ".content: expected 1 to " + std::to_string(kMaxContent) + " bytes"};
  }
  FL_ASSIGN(token.special, flag(value, "special", field));
  FL_ASSIGN(token.single_word, flag(value, "single_word", field));
  FL_ASSIGN(token.lstrip, flag(value, "lstrip", field));
  FL_ASSIGN(token.rstrip, flag(value, "rstrip", field));
  FL_ASSIGN(token.normalized, flag(value, "normalized", field));
  return token;
}

Result<TokenizerConfig> parse_tokenizer_config(std::string_view text, const std::string& name) {
  FL_ASSIGN(const Json json, parse_json(text, name, kLimits));
  if (!json.is_object()) return Error{name + ": expected a JSON object"};
  TokenizerConfig config;

  const auto tokenizer_class = json.find("tokenizer_class");
  if (tokenizer_class != json.end()) {
    if (!tokenizer_class->is_string()) return Error{name + ": tokenizer_class: expected a string"};
    config.tokenizer_class = tokenizer_class->get<std::string>();
  }

  const auto added = json.find("added_tokens_decoder");
  if (added != json.end()) {
    if (!added->is_object()) return Error{name + ": added_tokens_decoder: expected an object"};
    config.added.emplace();
    for (const auto& [key, value] : added->items()) {
      const std::string field = name + ": added_tokens_decoder." + quote_text(key);
      FL_ASSIGN(const std::int32_t id, id_of_key(key, field));
      FL_ASSIGN(AddedToken token, parse_added_token(value, id, field));
      config.added->push_back(std::move(token));
    }
    std::sort(config.added->begin(), config.added->end(),
              [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  }
  const auto add_bos = json.find("add_bos_token");
  if (add_bos != json.end() && !add_bos->is_null()) {
    if (!add_bos->is_boolean()) return Error{name + ": add_bos_token: expected true or false"};
    config.add_bos_token = add_bos->get<bool>();
  }

  for (const char* role : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
    const auto found = json.find(role);
    if (found == json.end()) continue;
    FL_ASSIGN(std::optional<std::string> token, token_text(*found, name + ": " + role));
    if (!token) continue;
    if (std::string_view(role) == "bos_token") config.bos_token = token;
    if (std::string_view(role) == "eos_token") config.eos_token = token;
    config.named.push_back(std::move(*token));
  }
  const auto additional = json.find("additional_special_tokens");
  if (additional != json.end() && !additional->is_null()) {
    if (!additional->is_array()) return Error{name + ": additional_special_tokens: expected an array"};
    for (const Json& value : *additional) {
      FL_ASSIGN(std::optional<std::string> token, token_text(value, name + ": additional_special_tokens"));
      if (token) config.named.push_back(std::move(*token));
    }
  }
  return config;
}

}  // namespace firstlight
