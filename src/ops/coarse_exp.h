// exp for weights that are rounded to bf16 anyway. Include after a simd_<isa>.h.
#pragma once

#ifndef FL_ISA_NS
#error "include a simd_<isa>.h first"
#endif

namespace firstlight::FL_ISA_NS {

/// exp(x) with 8 significant bits, for x <= 0: the error before rounding is 2^-13.7 of it, a twentieth of
/// what rounding adds. 0 below -86.98, so that no result is denormal: its lower 16 bits are 0 always, and may
/// be another bf16's place. Exact for 0; NaN in, NaN out.
FL_INLINE Vec coarse_exp(Vec x) {
  const Vec bounded = max(broadcast(-87.3F), x);  // the order of arguments lets NaN through
  // x = n ln 2 + r, |r| <= 0.3466. Adding 1.5 2^23 + 126 leaves n + 126 in the low bits; -126 gives scale 0.
  const Vec shift = broadcast(0x1.8p23F + 126.0F);
  const Vec shifted = fma(bounded, broadcast(0x1.715476p+0F), shift);
  const Vec r = fma(shifted - shift, broadcast(-0x1.62e43p-1F), bounded);
  // Least-maximum fit of the relative error; of 2 exp(r), since the scale is 2^(n - 1).
  Vec p = fma(broadcast(0x1.534972p-2F), r, broadcast(0x1.028b32p+0F));
  p = fma(p, r, broadcast(0x1.000ac8p+1F));
  p = fma(p, r, broadcast(0x1.fff68ep+0F));
  const Vec weight = p * as_float(shift_left<23>(as_int(shifted)));
  // Veltkamp: the leading 24 - 16 bits, nearest.
  const Vec high = weight * broadcast(0x1.0001p16F);
  return high - (high - weight);
}

}  // namespace firstlight::FL_ISA_NS
