// The flags that say how an answer is sampled and when it ends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/generation_config.h"
#include "engine/generation.h"

namespace CLI {
class App;
}

namespace firstlight {

struct SamplingFlags {
  std::optional<float> temperature;
  std::optional<int> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<float> presence_penalty;
  std::optional<float> frequency_penalty;
  std::optional<std::uint64_t> seed;
  std::optional<std::int64_t> max_tokens;
  std::vector<std::string> stop;
  bool ignore_end_tokens = false;
};

void add_sampling_flags(CLI::App& app, SamplingFlags& flags);

/// What is wrong with the flags by themselves.
Status check_sampling_flags(const SamplingFlags& flags);

/// Flags that were given come before the checkpoint's generation_config.json, and that before neutral values.
/// A flag that the file leaves without effect is an Error. Without --seed, a fresh seed is chosen.
Result<GenerationOptions> generation_options(const SamplingFlags& flags, const GenerationDefaults& defaults);

}  // namespace firstlight
