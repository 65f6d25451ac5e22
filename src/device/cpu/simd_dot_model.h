// The rounding model of a bf16 pair product, that of vdpbf16ps: denormal inputs count as zero, the odd
// (high) product is added first, each product is fused with its addition, and a result that is tiny after
// rounding becomes a zero of its sign. MXCSR has no say in it. Included by the emulating simd_*.h only.
#pragma once

#ifndef FL_ISA_NS
#error "include a simd_<isa>.h"
#endif

namespace firstlight::FL_ISA_NS {

FL_INLINE float denormal_as_zero(float x) {
  const auto u = __builtin_bit_cast(std::uint32_t, x);
  return (u & 0x7f800000U) == 0 ? __builtin_bit_cast(float, u & 0x80000000U) : x;
}

/// a * b + c with a tiny result flushed. Inputs are bf16 (a, b) and float (c), none denormal.
FL_INLINE float flushing_fma(float a, float b, float c) {
  const float r = __builtin_fmaf(a, b, c);
  if (__builtin_fabsf(r) > 0x1p-126F || r != r) return r;
  // Tiny means below 2^-126 once rounded to 24 bits with an unbounded exponent, that is below
  // 2^-126 (1 - 2^-25). Near that bound the sum is exact in double: the product has 16 bits, c has 24.
  const double exact = static_cast<double>(a) * static_cast<double>(b) + static_cast<double>(c);
  if (__builtin_fabs(exact) >= 0x1p-126 * (1 - 0x1p-25)) return r;
  return __builtin_copysignf(0.0F, exact != 0.0 ? static_cast<float>(exact) : r);
}

/// One lane: acc + high(a) high(b), then + low(a) low(b).
FL_INLINE float dot_pair(float acc, std::uint32_t a, std::uint32_t b) {
  const auto low = [](std::uint32_t u) { return denormal_as_zero(__builtin_bit_cast(float, u << 16)); };
  const auto high = [](std::uint32_t u) {
    return denormal_as_zero(__builtin_bit_cast(float, u & 0xffff0000U));
  };
  return flushing_fma(low(a), low(b), flushing_fma(high(a), high(b), denormal_as_zero(acc)));
}

}  // namespace firstlight::FL_ISA_NS
