// Table of the layer_norm kernels, one an instruction set.
#pragma once

#include <cstdint>

#include "ops/dispatch.h"

namespace firstlight {

struct LayerNormKernels {
  /// x, y [rows, width], w, b [width].
  void (*rows)(const float* x, const float* w, const float* b, float eps, std::int64_t rows,
               std::int64_t width, float* y);
};
FL_DECLARE_TABLES(LayerNormKernels, kLayerNormKernels)

}  // namespace firstlight
