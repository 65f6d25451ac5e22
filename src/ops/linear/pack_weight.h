// From a checkpoint's weights to packed panels, in the type that the run's arithmetic asks for: values that
// are exact in bf16 are held in bf16 in both modes; others in f32 in f32 mode or when `keep_f32`.
#pragma once

#include <vector>

#include "device/cpu/gemm.h"
#include "device/cpu/packed_matrix.h"
#include "ops/kernel.h"

namespace firstlight {

/// One weight [N, K].
Result<PackedMatrix> pack_weight(const WeightSource& weight, const KernelContext& context,
                                 bool keep_f32 = false);

/// Several weights [N_i, K], one after the other.
Result<PackedMatrix> pack_together(const std::vector<const WeightSource*>& weights,
                                   const KernelContext& context, bool keep_f32 = false);

}  // namespace firstlight
