// The part of the vector vocabulary that is written once over the rest. Included by simd_*.h only.
#pragma once

#ifndef FL_ISA_NS
#error "include a simd_<isa>.h"
#endif

namespace firstlight::FL_ISA_NS {

FL_INLINE Vec operator-(Vec a) { return as_float(as_int(a) ^ broadcast_int(INT32_MIN)); }
FL_INLINE Vec abs(Vec a) { return as_float(as_int(a) & broadcast_int(INT32_MAX)); }
/// -|a|
FL_INLINE Vec minus_abs(Vec a) { return as_float(as_int(a) | broadcast_int(INT32_MIN)); }
FL_INLINE Mask greater(Vec a, Vec b) { return less(b, a); }
FL_INLINE Mask greater_equal(Vec a, Vec b) { return less_equal(b, a); }
/// The size of `a` with the sign of `b`.
FL_INLINE Vec copysign(Vec a, Vec b) {
  return as_float(as_int(abs(a)) | (as_int(b) & broadcast_int(INT32_MIN)));
}

/// The sum of all lanes, where it and the partial sums lie within 2^24.
FL_INLINE std::int32_t sum_lanes(IVec a) { return static_cast<std::int32_t>(reduce_add(to_float(a))); }

/// The bf16 nearest to every lane (ties to even, denormals kept, NaN quiet) in the upper half of the
/// lane: the bits of base/dtype.h f32_to_bf16. Integer arithmetic, because vcvtneps2bf16 flushes denormals.
FL_INLINE Vec round_to_bf16(Vec a) {
  const IVec u = as_int(a);
  const IVec upper = broadcast_int(static_cast<std::int32_t>(0xffff0000U));
  const IVec tie = shift_right<16>(u) & broadcast_int(1);
  const IVec rounded = (u + broadcast_int(0x7fff) + tie) & upper;
  const IVec quiet = (u & upper) | broadcast_int(0x400000);
  return as_float(select(is_nan(a), quiet, rounded));
}
/// Element `which` (0: the low half, 1: the high half) of 16 pairs in memory, widened.
FL_INLINE Vec widened(const void* pairs, int which) {
  const IVec p = load_int(static_cast<const std::int32_t*>(pairs));
  return as_float(which == 0 ? shift_left<16>(p) : high_halves(p));
}
FL_INLINE void store_bf16(std::uint16_t* p, Vec a) {
  store_halves(p, shift_right<16>(as_int(round_to_bf16(a))));
}
FL_INLINE void store_bf16_n(std::uint16_t* p, Vec a, int n) {
  store_halves_n(p, shift_right<16>(as_int(round_to_bf16(a))), n);
}

}  // namespace firstlight::FL_ISA_NS
