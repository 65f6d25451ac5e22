#include "checkpoint/config.h"

#include "base/json_limits.h"
#include "base/mapped_file.h"

namespace firstlight {

namespace {

// The longest published configuration has some thousand values (lists of modules). What follows in Python
// takes a few hundred bytes for each.
constexpr JsonLimits kLimits = {.max_values = std::size_t{1} << 18};

}  // namespace

Result<nlohmann::ordered_json> read_config(const std::string& path) {
  FL_ASSIGN(const std::string text, read_file(path, kLimits.max_bytes));
  return parse_config(text, path);
}

Result<nlohmann::ordered_json> parse_config(std::string_view text, const std::string& path) {
  FL_ASSIGN(nlohmann::ordered_json config, parse_json(text, path, kLimits));
  if (!config.is_object()) return Error{path + ": is not a JSON object"};
  return config;
}

}  // namespace firstlight
