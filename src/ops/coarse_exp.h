// exp for weights that are rounded to bf16 anyway. Include after a simd_<isa>.h.
#pragma once

#ifndef FL_ISA_NS
#error "include a simd_<isa>.h first"
#endif

namespace firstlight::FL_ISA_NS {

/// exp(x) with 8 significant bits, for x <= 0: the error before rounding is 2^-13.7 of it, a twentieth of
/// what rounding adds. 0 below -87.7; exact for 0; NaN in, NaN out.
FL_INLINE Vec coarse_exp(Vec x) {
  const Vec bounded = max(broadcast(-88.0F), x);  // the order of arguments lets NaN through
  // x = n ln 2 + r, |r| <= 0.3466. Adding 1.5 2^23 + 127 leaves n + 127 in the low bits; -127 gives scale 0.
  const Vec shift = broadcast(0x1.8p23F + 127.0F);
  const Vec shifted = fma(bounded, broadcast(0x1.715476p+0F), shift);
  const Vec r = fma(shifted - shift, broadcast(-0x1.62e43p-1F), bounded);
  // Least-maximum fit of the relative error.
  Vec p = fma(broadcast(0x1.534972p-3F), r, broadcast(0x1.028b32p-1F));
  p = fma(p, r, broadcast(0x1.000ac8p+0F));
  p = fma(p, r, broadcast(0x1.fff68ep-1F));
  const Vec weight = p * as_float(shift_left<23>(as_int(shifted)));
  // Veltkamp: the leading 24 - 16 bits, nearest.
  const Vec high = weight * broadcast(0x1.0001p16F);
  return high - (high - weight);
}

}  // namespace firstlight::FL_ISA_NS
