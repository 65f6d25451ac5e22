#include "text/json_fields.h"

#include <algorithm>
#include <utility>

#include "base/json_limits.h"

namespace firstlight {

Result<JsonFields> JsonFields::of(const Json& value, std::string path) {
  if (!value.is_object()) return Error{path + ": expected an object"};
  return JsonFields(value, std::move(path));
}

const JsonFields::Json* JsonFields::find(std::string_view key) {
  asked_.emplace_back(key);
  const auto found = object_->find(asked_.back());
  return found == object_->end() ? nullptr : &*found;
}

Result<const JsonFields::Json*> JsonFields::need(std::string_view key) {
  const Json* found = find(key);
  if (found == nullptr) return Error{path(key) + ": is missing"};
  return found;
}

Result<std::string> JsonFields::text(std::string_view key) {
  FL_ASSIGN(const Json* found, need(key));
  if (!found->is_string()) return Error{path(key) + ": expected a string"};
  return found->get<std::string>();
}

Result<std::optional<std::string>> JsonFields::optional_text(std::string_view key) {
  const Json* found = find(key);
  if (found == nullptr || found->is_null()) return std::optional<std::string>();
  if (!found->is_string()) return Error{path(key) + ": expected a string or null"};
  return std::optional(found->get<std::string>());
}

Result<bool> JsonFields::flag(std::string_view key) {
  FL_ASSIGN(const Json* found, need(key));
  if (!found->is_boolean()) return Error{path(key) + ": expected true or false"};
  return found->get<bool>();
}

Result<bool> JsonFields::flag(std::string_view key, bool otherwise) {
  const Json* found = find(key);
  if (found == nullptr) return otherwise;
  if (!found->is_boolean()) return Error{path(key) + ": expected true or false"};
  return found->get<bool>();
}

Result<std::int64_t> JsonFields::count(std::string_view key) {
  FL_ASSIGN(const Json* found, need(key));
  if (!found->is_number_unsigned() || found->get<std::uint64_t>() > INT32_MAX) {
    return Error{path(key) + ": expected a number from 0 to 2147483647"};
  }
  return found->get<std::int64_t>();
}

Status JsonFields::finish() const {
  for (const auto& [key, value] : object_->items()) {
    if (std::find(asked_.begin(), asked_.end(), key) == asked_.end()) {
      return Error{path_ + ": unknown field " + quote_text(key, 80)};
    }
  }
  return {};
}

}  // namespace firstlight
