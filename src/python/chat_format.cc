#include "python/chat_format.h"

#include <algorithm>
#include <optional>

#include "base/json_limits.h"
#include "base/mapped_file.h"

namespace firstlight {
namespace {

using Json = nlohmann::ordered_json;
using Templates = std::map<std::string, std::string>;

/// The longest published template has 17 KB; tokenizer_config.json lists up to thousands of tokens.
constexpr std::size_t kMaxTemplateBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxConfigBytes = std::size_t{16} << 20;
constexpr std::size_t kMaxTemplates = 64;

bool file_exists(const std::filesystem::path& path) { return name_is_taken(path.string()); }

/// "bos_token": "<s>" or {"content": "<s>", …}.
std::optional<std::string> token_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string()) {
    return value["content"].get<std::string>();
  }
  return std::nullopt;
}

/// Fails for texts that are not UTF-8.
Result<std::string> json_text(const Json& value) {
  try {
    return value.dump();
  } catch (const Json::exception&) {
    return Error{"a message is not valid UTF-8"};
  }
}

/// An object from a file; an empty one where there is no such file.
Result<Json> read_object(const std::filesystem::path& path) {
  if (!file_exists(path)) return Json::object();
  FL_ASSIGN(const std::string text, read_file(path, kMaxConfigBytes));
  FL_ASSIGN(Json object, parse_json(text, path));
  if (!object.is_object()) return Error{path.string() + ": expected an object"};
  return object;
}

/// The chat_template of a config: a text, or a list of {"name", "template"}.
Result<Templates> templates_of(const Json& config, const std::string& origin) {
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return Templates{};
  if (found->is_string()) return Templates{{"default", found->get<std::string>()}};
  const std::string expected =
      origin + ": chat_template: expected a text or a list of {\"name\", \"template\"}";
  if (!found->is_array()) return Error{expected};
  Templates templates;
  for (const Json& entry : *found) {
    if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string() ||
        !entry.contains("template") || !entry["template"].is_string()) {
      return Error{expected};
    }
    const auto name = entry["name"].get<std::string>();
    if (!templates.emplace(name, entry["template"].get<std::string>()).second) {
      return Error{origin + ": chat_template: two templates are named " + quote_text(name)};
    }
  }
  return templates;
}

/// additional_chat_templates/NAME.jinja.
Status read_additional(const std::filesystem::path& folder, Templates& templates) {
  std::error_code failed;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failed)) {
    if (entry.path().extension() == ".jinja") files.push_back(entry.path());
    if (files.size() > kMaxTemplates) return Error{folder.string() + ": holds too many templates"};
  }
  for (const auto& file : files) {
    FL_ASSIGN(templates[file.stem().string()], read_file(file, kMaxTemplateBytes));
  }
  return {};
}

}  // namespace

Result<ChatFormat> ChatFormat::load(const std::filesystem::path& folder) {
  ChatFormat result;
  const std::filesystem::path config_path = folder / "tokenizer_config.json";
  FL_ASSIGN(const Json config, read_object(config_path));
  for (const char* name :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    const auto found = config.find(name);
    if (found == config.end()) continue;
    if (auto text = token_text(*found)) result.variables_[name] = std::move(*text);
  }

  const std::filesystem::path file = folder / "chat_template.jinja";
  if (file_exists(file)) {
    result.origin_ = file;
    FL_ASSIGN(result.templates_["default"], read_file(file, kMaxTemplateBytes));
    FL_TRY(read_additional(folder / "additional_chat_templates", result.templates_));
  } else {
    for (const char* name : {"tokenizer_config.json", "chat_template.json"}) {
      if (!result.templates_.empty()) break;
      result.origin_ = folder / name;
      FL_ASSIGN(const Json object, read_object(folder / name));
      FL_ASSIGN(result.templates_, templates_of(object, result.origin_));
    }
  }
  if (file_exists(folder / "config.json")) {
    FL_ASSIGN(const std::string model_config, read_file(folder / "config.json", kMaxConfigBytes));
    FL_TRY(parse_json(model_config, folder / "config.json"));
    FL_ASSIGN(result.format_, find_chat_format(model_config, !result.templates_.empty()));
  }
  if (result.templates_.empty()) result.origin_ = folder;
  if (result.templates_.empty() && result.format_.empty()) {
    return Error{folder.string() +
                 ": the checkpoint has no chat template (chat_template.jinja, or chat_template in "
                 "tokenizer_config.json or chat_template.json), and its family no chat format of its own"};
  }
  return result;
}

Result<ChatFormat> ChatFormat::load_template(const std::filesystem::path& file) {
  ChatFormat result;
  result.origin_ = file;
  FL_ASSIGN(result.templates_["default"], read_file(file, kMaxTemplateBytes));
  return result;
}

ChatFormat ChatFormat::named(std::string name) {
  ChatFormat result;
  result.origin_ = "chat format " + name;
  result.format_ = std::move(name);
  return result;
}

Result<std::string_view> ChatFormat::choose(bool has_tools) const {
  if (templates_.empty()) return std::string_view();
  if (has_tools) {
    if (const auto found = templates_.find("tool_use"); found != templates_.end())
      return std::string_view(found->second);
  }
  if (const auto found = templates_.find("default"); found != templates_.end())
    return std::string_view(found->second);
  std::string names;
  for (const auto& [name, text] : templates_) names += (names.empty() ? "" : ", ") + quote_text(name);
  return Error{origin_ + ": chat_template: none of the templates is named \"default\" (there are: " + names +
               ")"};
}

Result<Prompt> ChatFormat::render(std::string_view row_json, bool has_tools,
                                  const std::vector<std::string>& controls, RenderFailure* failure) const {
  ChatRequest request;
  FL_ASSIGN(request.template_text, choose(has_tools));
  const std::string variables = variables_.dump();
  std::string controls_json;
  if (!controls.empty()) {
    FL_ASSIGN(controls_json, json_text(Json(controls)));
  }
  request.format = format_;
  request.row_json = row_json;
  request.variables_json = variables;
  request.controls_json = controls_json;
  auto prompt = render_chat(request, kRenderTime, failure);
  if (!prompt) return Error{origin_ + ": " + prompt.error().message};
  return prompt;
}

Result<Prompt> ChatFormat::render_messages(const Json& messages, bool add_generation_prompt,
                                           const std::vector<std::string>& controls) const {
  const Json row = {{"messages", messages}, {"kwargs", {{"add_generation_prompt", add_generation_prompt}}}};
  FL_ASSIGN(const std::string row_json, json_text(row));
  return render(row_json, /*has_tools=*/false, controls);
}

std::string ChatFormat::template_texts() const {
  std::string texts;
  for (const auto& [name, text] : templates_) texts += text + "\n";
  return texts;
}

}  // namespace firstlight
