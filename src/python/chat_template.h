// The chat template of a checkpoint folder, with the special tokens that it may name.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "base/result.h"

namespace firstlight {

class ChatTemplate {
 public:
  /// chat_template.jinja, or else tokenizer_config.json's chat_template (a text, or a list of named ones of
  /// which "default" is taken). A folder with neither is an Error that names both.
  static Result<ChatTemplate> load(const std::filesystem::path& folder);

  /// The prompt for `messages`, an array of {role, content …}.
  [[nodiscard]] Result<std::string> render(const nlohmann::ordered_json& messages,
                                           bool add_generation_prompt = true) const;

 private:
  std::string text_;
  std::string origin_;                // the file, for messages
  nlohmann::ordered_json variables_;  // bos_token, eos_token … of tokenizer_config.json, as text
};

}  // namespace firstlight
