// generation_config.json: the sampling settings that a model's authors recommend.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace firstlight {

/// Absent or null fields are empty. Ranges are checked where the comment says so.
struct GenerationDefaults {
  std::optional<bool> do_sample;
  std::optional<double> temperature;           // >= 0
  std::optional<double> top_p;                 // 0..1
  std::optional<std::int64_t> top_k;           // >= -1; 0 and -1 mean no limit, both are given as 0
  std::optional<double> min_p;                 // 0..1
  std::optional<double> repetition_penalty;    // > 0
  std::optional<double> presence_penalty;      // -2..2, as in the OpenAI API
  std::optional<double> frequency_penalty;     // -2..2
  std::optional<std::int64_t> max_new_tokens;  // >= 1
  std::optional<std::int64_t> max_length;      // >= 1, prompt included
  std::optional<std::int32_t> bos_token_id;    // >= 0
  std::optional<std::int32_t> pad_token_id;    // >= 0
  std::vector<std::int32_t> eos_token_ids;     // >= 0; one number or a list in the file, repetitions dropped
  /// Every other key, in file order, but for the file's own book-keeping ("transformers_version" and the
  /// like).
  std::vector<std::string> unknown_keys;
};

/// A file that does not exist leaves everything empty. All wrong fields are named in the one Error.
Result<GenerationDefaults> read_generation_config(const std::string& path);

/// The same for text in memory; `path` is for messages.
Result<GenerationDefaults> parse_generation_config(std::string_view text, const std::string& path);

}  // namespace firstlight
