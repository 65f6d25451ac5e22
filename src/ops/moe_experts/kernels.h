// Table of the moe_experts kernels, one an instruction set.
#pragma once

#include <cstdint>

#include "ops/dispatch.h"

namespace firstlight {

struct MoeExpertsKernels {
  /// gate_up [rows, 2 width] (gate, then up) -> hidden [rows, width]. constants null: SiLU; else SiTU's.
  void (*activate)(const float* gate_up, std::int64_t rows, std::int64_t width, const float* constants,
                   float* hidden);
  /// y[c] = sum over i < count, in order, of weights[i] * parts[slots[i] * width + c].
  void (*combine)(const float* parts, const std::int32_t* slots, const float* weights, std::int64_t count,
                  std::int64_t width, float* y);
};
FL_DECLARE_TABLES(MoeExpertsKernels, kMoeExpertsKernels)

}  // namespace firstlight
