// Reading an object of a small configuration field by field: types are checked, and what nobody asked for is
// an error that names it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace firstlight {

class JsonFields {
 public:
  using Json = nlohmann::ordered_json;

  /// `path` ("tokenizer.json: decoder") begins every message. Fails unless `value` is an object.
  static Result<JsonFields> of(const Json& value, std::string path);

  /// The field, null if it is absent.
  const Json* find(std::string_view key);
  /// The field, which must be there.
  Result<const Json*> need(std::string_view key);
  Result<std::string> text(std::string_view key);
  Result<std::optional<std::string>> optional_text(std::string_view key);  // absent or null: none
  Result<bool> flag(std::string_view key);
  Result<bool> flag(std::string_view key, bool otherwise);
  Result<std::int64_t> count(std::string_view key);  // from 0 to 2^31 - 1

  /// An error that names a field which was not asked for.
  Status finish() const;

  [[nodiscard]] std::string path(std::string_view key) const { return path_ + "." + std::string(key); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  JsonFields(const Json& object, std::string path) : object_(&object), path_(std::move(path)) {}
  const Json* object_;
  std::string path_;
  std::vector<std::string> asked_;
};

}  // namespace firstlight
