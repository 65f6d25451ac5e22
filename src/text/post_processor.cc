#include "text/post_processor.h"

#include <cstddef>

#include "base/json_limits.h"
#include "text/json_fields.h"

namespace firstlight {
namespace {

using Json = nlohmann::ordered_json;
using Ids = std::vector<std::int32_t>;

constexpr std::size_t kMaxDepth = 8;

Result<std::int32_t> id_of(const Json& value, const std::string& path) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > INT32_MAX)
    return Error{path + ": expected an id"};
  return value.get<std::int32_t>();
}

/// "cls" and "sep": ["<s>", 0].
Result<std::int32_t> named_id(JsonFields& fields, std::string_view key) {
  FL_ASSIGN(const Json* pair, fields.need(key));
  if (!pair->is_array() || pair->size() != 2) return Error{fields.path(key) + ": expected [text, id]"};
  return id_of((*pair)[1], fields.path(key) + "[1]");
}

/// Adds the ids of the template's special tokens up to the text; `special` maps their names to ids.
Status read_template(const Json& steps, const Json& special, const std::string& path, Ids& ids) {
  if (!steps.is_array()) return Error{path + ".single: expected an array"};
  for (std::size_t i = 0; i < steps.size(); ++i) {
    FL_ASSIGN(JsonFields step, JsonFields::of(steps[i], path + ".single[" + std::to_string(i) + "]"));
    if (step.find("Sequence") != nullptr) return step.finish();
    FL_ASSIGN(const Json* token, step.need("SpecialToken"));
    FL_TRY(step.finish());
    FL_ASSIGN(JsonFields token_fields, JsonFields::of(*token, step.path("SpecialToken")));
    FL_ASSIGN(const std::string name, token_fields.text("id"));
    const std::string entry = path + ".special_tokens." + quote_text(name, 80);
    if (!special.is_object() || !special.contains(name)) return Error{entry + ": is missing"};
    FL_ASSIGN(JsonFields special_fields, JsonFields::of(special.at(name), entry));
    FL_ASSIGN(const Json* list, special_fields.need("ids"));
    if (!list->is_array()) return Error{special_fields.path("ids") + ": expected an array"};
    for (const Json& value : *list) {
      FL_ASSIGN(const std::int32_t id, id_of(value, special_fields.path("ids")));
      ids.push_back(id);
    }
  }
  return Error{path + ".single: no Sequence"};
}

Status add_ids(const Json& json, const std::string& path, std::size_t depth, Ids& ids) {
  if (depth == kMaxDepth) return Error{path + ": too many post-processors"};
  FL_ASSIGN(JsonFields fields, JsonFields::of(json, path));
  FL_ASSIGN(const std::string type, fields.text("type"));
  if (type == "Sequence") {
    FL_ASSIGN(const Json* list, fields.need("processors"));
    FL_TRY(fields.finish());
    if (!list->is_array()) return Error{fields.path("processors") + ": expected an array"};
    for (std::size_t i = 0; i < list->size(); ++i) {
      FL_TRY(add_ids((*list)[i], fields.path("processors") + "[" + std::to_string(i) + "]", depth + 1, ids));
    }
    return {};
  }
  if (type == "TemplateProcessing") {
    FL_ASSIGN(const Json* single, fields.need("single"));
    FL_ASSIGN(const Json* special, fields.need("special_tokens"));
    fields.find("pair");  // for two texts: nobody asks
    Ids found;
    FL_TRY(read_template(*single, *special, path, found));
    ids.insert(ids.begin(), found.begin(), found.end());
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    FL_ASSIGN(const std::int32_t id, named_id(fields, "cls"));
    FL_TRY(named_id(fields, "sep"));
    FL_TRY(fields.flag("trim_offsets", true));
    FL_TRY(fields.flag("add_prefix_space", true));
    ids.insert(ids.begin(), id);
  } else if (type == "ByteLevel") {  // only offsets, which nobody asks for
    FL_TRY(fields.flag("add_prefix_space", true));
    FL_TRY(fields.flag("trim_offsets", true));
    FL_TRY(fields.flag("use_regex", true));
  } else {
    return Error{fields.path("type") + ": the post-processor " + quote_text(type, 80) + " is not supported"};
  }
  return fields.finish();
}

}  // namespace

Result<Ids> ids_before_text(const Json& json, const std::string& path) {
  Ids ids;
  if (!json.is_null()) FL_TRY(add_ids(json, path, 0, ids));
  return ids;
}

}  // namespace firstlight
