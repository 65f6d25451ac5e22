// Any text is a generation config within its ranges, or one Error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "checkpoint/generation_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto d = firstlight::parse_generation_config({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!d.ok()) return 0;
  const bool good = d->temperature.value_or(0) >= 0 && d->top_p.value_or(0) <= 1 &&
                    d->top_k.value_or(0) >= 0 && d->min_p.value_or(0) >= 0 &&
                    d->repetition_penalty.value_or(1) > 0 && d->max_new_tokens.value_or(1) >= 1;
  if (!good) std::abort();
  for (const auto id : d->eos_token_ids) {
    if (id < 0) std::abort();
  }
  return 0;
}
