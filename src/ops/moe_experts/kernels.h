// Table of the moe_experts kernels, one an instruction set.
#pragma once

#include <cstdint>

#include "ops/dispatch.h"

namespace firstlight {

/// Rows of one expert: gate_up [rows, 2 width] (gate, then up), bias [2 width] or null -> hidden [rows,
/// width].
using ActivateFunction = void (*)(const float* gate_up, const float* bias, std::int64_t rows,
                                  std::int64_t width, const float* constants, float* hidden);

struct MoeExpertsKernels {
  ActivateFunction silu;
  ActivateFunction situ;            // constants: see ops/activation.h
  ActivateFunction clamped_swiglu;  // constants: see ops/activation.h
  /// y[c] = sum over i < count, in order, of weights[i] * parts[slots[i] * width + c]; with a bias [experts,
  /// width], that of experts[i] is added to the part first.
  void (*combine)(const float* parts, const std::int32_t* slots, const float* bias,
                  const std::int32_t* experts, const float* weights, std::int64_t count, std::int64_t width,
                  float* y);
};
FL_DECLARE_TABLES(MoeExpertsKernels, kMoeExpertsKernels)

}  // namespace firstlight
