#include "python/chat_template.h"

#include <optional>

#include "base/json_limits.h"
#include "base/mapped_file.h"
#include "python/template_renderer.h"

namespace firstlight {
namespace {

using Json = nlohmann::ordered_json;

/// The longest published template has 17 KB; tokenizer_config.json lists up to thousands of tokens.
constexpr std::size_t kMaxTemplateBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxConfigBytes = std::size_t{16} << 20;

/// "bos_token": "<s>" or {"content": "<s>", …}.
std::optional<std::string> token_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string()) {
    return value["content"].get<std::string>();
  }
  return std::nullopt;
}

/// The config's chat_template; empty if it has none.
Result<std::string> template_of(const Json& config, const std::string& origin) {
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return std::string();
  if (found->is_string()) return found->get<std::string>();

  const std::string expected =
      origin + ": chat_template: expected a text or a list of {\"name\", \"template\"}";
  if (!found->is_array()) return Error{expected};
  std::string names;
  for (const Json& entry : *found) {
    if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string() ||
        !entry.contains("template") || !entry["template"].is_string()) {
      return Error{expected};
    }
    const auto name = entry["name"].get<std::string>();
    if (name == "default") return entry["template"].get<std::string>();
    names += (names.empty() ? "" : ", ") + quote_text(name);
  }
  return Error{origin + ": chat_template: none of the templates is named \"default\" (there are: " + names +
               ")"};
}

}  // namespace

Result<ChatTemplate> ChatTemplate::load(const std::filesystem::path& folder) {
  const std::filesystem::path template_path = folder / "chat_template.jinja";
  const std::filesystem::path config_path = folder / "tokenizer_config.json";
  ChatTemplate result;
  result.variables_ = Json::object();

  Json config = Json::object();
  std::error_code ignored;
  if (std::filesystem::exists(config_path, ignored)) {
    FL_ASSIGN(const std::string text, read_file(config_path, kMaxConfigBytes));
    FL_ASSIGN(config, parse_json(text, config_path));
    if (!config.is_object()) return Error{config_path.string() + ": expected an object"};
  }
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token"}) {
    const auto found = config.find(name);
    if (found == config.end()) continue;
    if (auto text = token_text(*found)) result.variables_[name] = std::move(*text);
  }

  if (std::filesystem::exists(template_path, ignored)) {
    result.origin_ = template_path;
    FL_ASSIGN(result.text_, read_file(template_path, kMaxTemplateBytes));
  } else {
    result.origin_ = config_path;
    FL_ASSIGN(result.text_, template_of(config, config_path));
    if (result.text_.empty()) {
      return Error{folder.string() +
                   ": the checkpoint has no chat template, neither chat_template.jinja nor chat_template in "
                   "tokenizer_config.json"};
    }
  }
  return result;
}

Result<std::string> ChatTemplate::render(const Json& messages, bool add_generation_prompt) const {
  RenderOptions options;
  options.add_generation_prompt = add_generation_prompt;
  options.variables_json = variables_.dump();
  auto text = render_chat(text_, messages.dump(), options);
  if (!text) return Error{origin_ + ": " + text.error().message};
  return text;
}

}  // namespace firstlight
