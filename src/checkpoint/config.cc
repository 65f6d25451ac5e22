#include "checkpoint/config.h"

#include "base/json_limits.h"
#include "base/mapped_file.h"

namespace firstlight {

Result<nlohmann::ordered_json> read_config(const std::string& path) {
  FL_ASSIGN(const std::string text, read_file(path, JsonLimits().max_bytes));
  return parse_config(text, path);
}

Result<nlohmann::ordered_json> parse_config(std::string_view text, const std::string& path) {
  FL_ASSIGN(nlohmann::ordered_json config, parse_json(text, path));
  if (!config.is_object()) return Error{path + ": is not a JSON object"};
  return config;
}

}  // namespace firstlight
