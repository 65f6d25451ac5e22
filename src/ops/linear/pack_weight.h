// From a checkpoint's weights to packed panels, in the type that the run's arithmetic asks for: values that
// are exact in bf16 are held in bf16 in both modes; others in f32 in f32 mode or when `keep_f32`. `held`
// asks for 8 or 4 bits where the run is not in f32.
#pragma once

#include <vector>

#include "device/cpu/gemm.h"
#include "device/cpu/packed_matrix.h"
#include "ops/kernel.h"

namespace firstlight {

/// What a weight is held as when `asked` for and `stored` so: 4 bits are never widened, nor rounded again.
HeldAs held_form(HeldAs asked, HeldAs stored);

/// The same for weights that a kernel can hold in 8 bits, but not in 4: kInt8, or kStored for bf16.
HeldAs held_in_bytes(HeldAs asked, HeldAs stored);
Packing packing_of(HeldAs held, bool exact_in_bf16, bool f32, bool keep_f32);

/// One weight [N, K].
Result<PackedMatrix> pack_weight(const WeightSource& weight, const KernelContext& context, HeldAs held,
                                 bool keep_f32 = false);

/// Several weights [N_i, K], one after the other.
Result<PackedMatrix> pack_together(const std::vector<const WeightSource*>& weights,
                                   const KernelContext& context, HeldAs held, bool keep_f32 = false);

}  // namespace firstlight
