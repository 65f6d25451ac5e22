// Table of the rope kernels, one an instruction set.
#pragma once

#include <cstdint>

#include "ops/dispatch.h"

namespace firstlight {

/// Pairs (i, i + pairs) or (2i, 2i + 1) of x, y [2 pairs]; angles [cos: pairs | sin: pairs].
using RotateFunction = void (*)(const float* x, const float* angles, std::int64_t pairs, float* y);

struct RopeKernels {
  RotateFunction half;
  RotateFunction interleaved;
};
FL_DECLARE_TABLES(RopeKernels, kRopeKernels)

}  // namespace firstlight
