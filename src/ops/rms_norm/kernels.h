// Table of the rms_norm kernels, one an instruction set.
#pragma once

#include <cstdint>

#include "ops/dispatch.h"

namespace firstlight {

struct RmsNormKernels {
  /// x, y [rows, width], w [width].
  void (*rows)(const float* x, const float* w, float eps, std::int64_t rows, std::int64_t width, float* y);
};
FL_DECLARE_TABLES(RmsNormKernels, kRmsNormKernels)

}  // namespace firstlight
