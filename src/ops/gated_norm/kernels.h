// Table of the gated_norm kernels, one an instruction set.
#pragma once

#include <cstdint>

#include "ops/dispatch.h"

namespace firstlight {

struct GatedNormKernels {
  /// x, gate, y [heads, width]: any number of heads of any rows, one after another; w [width].
  /// The gate goes through silu, else through the sigmoid.
  void (*heads)(const float* x, const float* gate, const float* w, float eps, std::int64_t heads,
                std::int64_t width, bool with_silu, float* y);
};
FL_DECLARE_TABLES(GatedNormKernels, kGatedNormKernels)

}  // namespace firstlight
