// The executable specification of embedding.
#pragma once

#include "ops/sampled_rows/reference.h"

namespace firstlight::reference {

/// weight [vocab, width], tokens [T] -> h [T, width]. spec kimi 3.2.
inline std::vector<float> embedding(std::span<const float> weight, std::span<const std::int32_t> tokens,
                                    std::size_t width) {
  return pick_rows(weight, tokens, width);
}

}  // namespace firstlight::reference
