// JSON configuration files of a checkpoint folder.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace firstlight {

/// Reads a file that must hold one JSON object: valid UTF-8, no duplicate keys, at most 64 levels, 262144
/// values and 64 MiB. The order of keys is kept. Meaning and types of the fields are the caller's affair.
Result<nlohmann::ordered_json> read_config(const std::string& path);

/// The same for text in memory; `path` is for messages.
Result<nlohmann::ordered_json> parse_config(std::string_view text, const std::string& path);

}  // namespace firstlight
