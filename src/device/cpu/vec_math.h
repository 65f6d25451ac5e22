// exp, sigmoid, tanh, softplus and friends on Vec: fixed polynomials over the vocabulary, so the bits are
// the same on every instruction set and in every lane, and no libm is called. NaN in, NaN out.
// Include after a simd_<isa>.h. Coefficients are least-maximum fits of the relative error; the errors
// named below were measured against double over the whole range (vec_math_test.cc).
#pragma once

#ifndef FL_ISA_NS
#error "include a simd_<isa>.h first"
#endif

namespace firstlight::FL_ISA_NS {

/// exp of x in [-104, 89] or NaN.
FL_INLINE Vec exp_within(Vec x) {
  // x = n ln 2 + r, |r| <= 0.3466. ln 2 in two parts: n times the first (15 bits) is exact.
  const Vec n = round_even(x * broadcast(0x1.715476p+0F));
  Vec r = fma(n, broadcast(-0x1.62e4p-1F), x);
  r = fma(n, broadcast(-0x1.7f7d1cp-20F), r);
  // exp(r) = 1 + r + r^2 q(r); q's fit leaves 5e-11.
  Vec q = broadcast(0x1.9f0716p-13F);
  q = fma(q, r, broadcast(0x1.6d8eeep-10F));
  q = fma(q, r, broadcast(0x1.111274p-7F));
  q = fma(q, r, broadcast(0x1.55548cp-5F));
  q = fma(q, r, broadcast(0x1.555554p-3F));
  q = fma(q, r, broadcast(0.5F));
  const Vec p = broadcast(1.0F) + fma(r * r, q, r);
  return times_power(p, n);  // n reaches -150 and 128
}

/// 1 ulp. 0 below -103.98, denormal results rounded once, infinity above 88.72.
FL_INLINE Vec exp(Vec x) {
  // Beyond these exp rounds to 0 and to infinity; the order of arguments lets NaN through.
  return exp_within(min(broadcast(89.0F), max(broadcast(-104.0F), x)));
}

/// exp of x <= 0, with the same bits.
FL_INLINE Vec exp_of_negative(Vec x) { return exp_within(max(broadcast(-104.0F), x)); }

/// log(1 + u) for u in [0, 1], 2 ulp: 2 atanh(s) = 2 s (1 + z q(z)) with s = u / (2 + u), z = s^2 <= 1/9.
FL_INLINE Vec log1p_unit(Vec u) {
  const Vec s = u / (u + broadcast(2.0F));
  const Vec z = s * s;
  Vec q = broadcast(0x1.f1aee2p-4F);
  q = fma(q, z, broadcast(0x1.b6d6a4p-4F));
  q = fma(q, z, broadcast(0x1.250972p-3F));
  q = fma(q, z, broadcast(0x1.9996a8p-3F));
  q = fma(q, z, broadcast(0x1.555558p-2F));
  const Vec twice = s + s;
  return fma(twice * z, q, twice);
}

/// log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|)); no overflow, no cancellation.
FL_INLINE Vec softplus(Vec x) { return max(zero(), x) + log1p_unit(exp_of_negative(minus_abs(x))); }

/// 1 / (1 + exp(-x)), relative accuracy kept down to the denormals of large negative x.
FL_INLINE Vec sigmoid(Vec x) {
  const Vec e = exp_of_negative(minus_abs(x));
  const Vec numerator = select(less(x, zero()), e, broadcast(1.0F));
  return numerator / (broadcast(1.0F) + e);
}

/// x sigmoid(x).
FL_INLINE Vec silu(Vec x) { return x * sigmoid(x); }

/// Relative error below 3e-7 everywhere; odd in x to the bit.
FL_INLINE Vec tanh(Vec x) {
  const Vec size = abs(x);
  // Large: (1 - e) / (1 + e), e = exp(-2 |x|). At the switch e = 0.29, so 1 - e loses no digits.
  const Vec e = exp_of_negative(size * broadcast(-2.0F));
  const Vec large = (broadcast(1.0F) - e) / (broadcast(1.0F) + e);
  // Small: x + x z q(z), z = x^2; q's fit on |x| <= 0.625 leaves 2e-10.
  const Vec z = size * size;
  Vec q = broadcast(0x1.197b7ap-9F);
  q = fma(q, z, broadcast(-0x1.0c2146p-7F));
  q = fma(q, z, broadcast(0x1.6394dap-6F));
  q = fma(q, z, broadcast(-0x1.b9ef7cp-5F));
  q = fma(q, z, broadcast(0x1.11106cp-3F));
  q = fma(q, z, broadcast(-0x1.555554p-2F));
  const Vec small = fma(size * z, q, size);
  return copysign(select(less(size, broadcast(0.625F)), small, large), x);
}

}  // namespace firstlight::FL_ISA_NS
