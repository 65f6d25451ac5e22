// The "post_processor" of tokenizer.json: which ids it puts before a text.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"

namespace firstlight {

/// The ids before a single text; what follows a text is of no use to a model that is to go on writing. Reads
/// TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel, and Sequences of them. `path`
/// ("tokenizer.json: post_processor") begins messages.
Result<std::vector<std::int32_t>> ids_before_text(const nlohmann::ordered_json& json,
                                                  const std::string& path);

}  // namespace firstlight
