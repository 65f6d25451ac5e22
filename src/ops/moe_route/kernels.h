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
  /// choose_experts of one group (choose.h): ids, ascending, of the k best scores + bias; ties: the lower id.
  /// bias [n] or null; sums: scratch for n rounded up to 16. False, and nothing chosen, where a sum is NaN.
  bool (*choose)(const float* scores, const float* bias, std::int64_t n, std::int64_t k, float* sums,
                 std::int32_t* chosen);
};
FL_DECLARE_TABLES(MoeRouteKernels, kMoeRouteKernels)

}  // namespace firstlight
