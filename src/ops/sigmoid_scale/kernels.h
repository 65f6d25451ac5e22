// Table of the sigmoid_scale kernels, one an instruction set.
#pragma once

#include <cstdint>

#include "ops/dispatch.h"

namespace firstlight {

struct SigmoidScaleKernels {
  /// x, y [rows, width]; gate [rows].
  void (*rows)(const float* x, const float* gate, std::int64_t rows, std::int64_t width, float* y);
};
FL_DECLARE_TABLES(SigmoidScaleKernels, kSigmoidScaleKernels)

}  // namespace firstlight
