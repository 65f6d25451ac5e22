// Table of the moe_route kernels, one an instruction set.
#pragma once

#include <cstdint>

#include "ops/dispatch.h"

namespace firstlight {

struct MoeRouteKernels {
  /// scores[i] = sigmoid(logits[i]).
  void (*sigmoid)(const float* logits, std::int64_t n, float* scores);
  /// scores[i] = exp(logits[i]) / sum exp(logits), the largest logit taken off first.
  void (*softmax)(const float* logits, std::int64_t n, float* scores);
};
FL_DECLARE_TABLES(MoeRouteKernels, kMoeRouteKernels)

}  // namespace firstlight
