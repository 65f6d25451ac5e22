// Table of the depth_mix kernels, one an instruction set.
#pragma once

#include <cstdint>

#include "ops/dispatch.h"

namespace firstlight {

struct DepthMixKernels {
  /// sources [n][rows begin..end, width], direction [width] = norm * proj, scores [n] scratch, h [., width].
  void (*rows)(const float* const* sources, std::int64_t n, const float* direction, float eps,
               std::int64_t begin, std::int64_t end, std::int64_t width, float* scores, float* h);
};
FL_DECLARE_TABLES(DepthMixKernels, kDepthMixKernels)

}  // namespace firstlight
