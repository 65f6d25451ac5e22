// How a checkpoint writes a conversation: its chat template, or the chat format of its family, with the
// special tokens that a template may name.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "python/chat_renderer.h"
#include "text/prompt.h"

namespace firstlight {

class ChatFormat {
 public:
  /// Of a checkpoint folder; weights and tokenizer need not be there. The template is chat_template.jinja, or
  /// else chat_template in tokenizer_config.json or in chat_template.json: a text, or a list of named ones of
  /// which "default" is taken, and "tool_use", if there is one, where tools are declared.
  /// additional_chat_templates/*.jinja are further named ones. A family whose format is a file of models/chat
  /// uses that where the folder has no template, or around the template. A folder with neither is an Error
  /// that names the places.
  static Result<ChatFormat> load(const std::filesystem::path& folder);

  /// One template file.
  static Result<ChatFormat> load_template(const std::filesystem::path& file);

  /// A format of models/chat alone; whether it exists shows at the first rendering.
  static ChatFormat named(std::string name);

  /// This template with the format of that name.
  void set_format(std::string name) { format_ = std::move(name); }

  /// The prompt for `row_json` (ChatRequest::row_json). `has_tools`: it declares tools. `controls`: the
  /// control tokens that it must not forge; none: the prompt of a template is one part.
  [[nodiscard]] Result<Prompt> render(std::string_view row_json, bool has_tools,
                                      const std::vector<std::string>& controls = {},
                                      RenderFailure* failure = nullptr) const;

  /// The prompt for `messages`, an array of {role, content …}.
  [[nodiscard]] Result<Prompt> render_messages(const nlohmann::ordered_json& messages,
                                               bool add_generation_prompt,
                                               const std::vector<std::string>& controls = {}) const;

  /// All templates, one after the other: what they write is structure.
  [[nodiscard]] std::string template_texts() const;

 private:
  [[nodiscard]] Result<std::string_view> choose(bool has_tools) const;

  std::map<std::string, std::string> templates_;  // by name; the only one, or the main one, is "default"
  std::string format_;                            // a file of models/chat, or empty
  std::string origin_;                            // the file or folder, for messages
  nlohmann::ordered_json variables_ = nlohmann::ordered_json::object();  // bos_token, eos_token … as text
};

}  // namespace firstlight
