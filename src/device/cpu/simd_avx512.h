// The vector vocabulary on AVX-512 (F, BW, DQ, VL, BF16): 16 floats are one zmm register.
// Every header simd_*.h defines the same names with the same bits; README.md lists them.
// Include only from a *_avx512.cc file.
#pragma once

// GCC 12 sees the header's own "undefined" pass-through operands as uninitialised variables.
#pragma GCC diagnostic push
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <cstdint>

#ifdef FL_ISA_NS
#error "one instruction set per translation unit"
#endif
#define FL_ISA_NS avx512
#define FL_ISA_NAME "avx512"
#define FL_INLINE static inline __attribute__((always_inline))

namespace firstlight::FL_ISA_NS {

constexpr int kLanes = 16;

struct Vec {
  __m512 v;
};
struct IVec {
  __m512i v;
};
struct Mask {
  __mmask16 m;
};
/// 16 pairs of bf16: lane i holds elements 2i (low half) and 2i + 1 (high half).
struct Pairs {
  __m512i v;
};

// ---- lanes ----------------------------------------------------------------------------------------
FL_INLINE Mask first_lanes(int n) {
  return {n >= kLanes ? static_cast<__mmask16>(0xffff) : static_cast<__mmask16>((1U << n) - 1U)};
}
FL_INLINE unsigned bits(Mask a) { return a.m; }
FL_INLINE bool any(Mask a) { return a.m != 0; }
FL_INLINE bool all(Mask a) { return a.m == 0xffff; }
FL_INLINE Mask operator&(Mask a, Mask b) { return {static_cast<__mmask16>(a.m & b.m)}; }
FL_INLINE Mask operator|(Mask a, Mask b) { return {static_cast<__mmask16>(a.m | b.m)}; }
FL_INLINE Mask operator~(Mask a) { return {static_cast<__mmask16>(~a.m)}; }

// ---- memory: no alignment needed; the _n forms touch n <= 16 elements and fill with zero ----------
FL_INLINE Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
FL_INLINE Vec load_n(const float* p, int n) { return {_mm512_maskz_loadu_ps(first_lanes(n).m, p)}; }
FL_INLINE void store(float* p, Vec a) { _mm512_storeu_ps(p, a.v); }
FL_INLINE void store_n(float* p, Vec a, int n) { _mm512_mask_storeu_ps(p, first_lanes(n).m, a.v); }
FL_INLINE Vec broadcast(float x) { return {_mm512_set1_ps(x)}; }
FL_INLINE Vec zero() { return {_mm512_setzero_ps()}; }
FL_INLINE IVec load_int(const std::int32_t* p) { return {_mm512_loadu_si512(p)}; }
FL_INLINE void store_int(std::int32_t* p, IVec a) { _mm512_storeu_si512(p, a.v); }
FL_INLINE IVec broadcast_int(std::int32_t x) { return {_mm512_set1_epi32(x)}; }
FL_INLINE IVec load_u8(const std::uint8_t* p) {
  return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
FL_INLINE void store_bytes(std::int8_t* p, IVec a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a.v));
}
FL_INLINE void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
/// Into the second level: what is wanted after other work that needs the first.
FL_INLINE void prefetch_later(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

// ---- arithmetic: IEEE single, round to nearest even -------------------------------------------------
FL_INLINE Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
FL_INLINE Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
FL_INLINE Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
FL_INLINE Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
/// a * b + c, rounded once.
FL_INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
FL_INLINE Vec sqrt(Vec a) { return {_mm512_sqrt_ps(a.v)}; }
/// a > b ? a : b in every lane, so b where either is NaN.
FL_INLINE Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
/// a < b ? a : b in every lane, so b where either is NaN.
FL_INLINE Vec min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }

// ---- integers -------------------------------------------------------------------------------------
FL_INLINE IVec operator+(IVec a, IVec b) { return {_mm512_add_epi32(a.v, b.v)}; }
FL_INLINE IVec operator-(IVec a, IVec b) { return {_mm512_sub_epi32(a.v, b.v)}; }
FL_INLINE IVec operator&(IVec a, IVec b) { return {_mm512_and_si512(a.v, b.v)}; }
FL_INLINE IVec operator|(IVec a, IVec b) { return {_mm512_or_si512(a.v, b.v)}; }
FL_INLINE IVec operator^(IVec a, IVec b) { return {_mm512_xor_si512(a.v, b.v)}; }
template <int N>
FL_INLINE IVec shift_left(IVec a) {
  return {_mm512_slli_epi32(a.v, N)};
}
/// Logical: zeros enter from the left.
template <int N>
FL_INLINE IVec shift_right(IVec a) {
  return {_mm512_srli_epi32(a.v, N)};
}
template <int N>
FL_INLINE IVec shift_right_signed(IVec a) {
  return {_mm512_srai_epi32(a.v, N)};
}
/// Clears the low half of every lane. (No vector constant that would occupy a register.)
FL_INLINE IVec high_halves(IVec a) { return {_mm512_maskz_mov_epi16(0xaaaaaaaaU, a.v)}; }
FL_INLINE IVec as_int(Vec a) { return {_mm512_castps_si512(a.v)}; }
FL_INLINE Vec as_float(IVec a) { return {_mm512_castsi512_ps(a.v)}; }
/// Rounds to nearest even; INT32_MIN for NaN and values outside int32.
FL_INLINE IVec to_int(Vec a) { return {_mm512_cvtps_epi32(a.v)}; }
FL_INLINE Vec to_float(IVec a) { return {_mm512_cvtepi32_ps(a.v)}; }
/// The nearest integer, ties to even, with the sign of a.
FL_INLINE Vec round_even(Vec a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
/// a 2^n, rounded once, for integers n of [-160, 160] and a of [1/2, 2]; NaN where either is NaN.
FL_INLINE Vec times_power(Vec a, Vec n) { return {_mm512_scalef_ps(a.v, n.v)}; }

/// acc + the sum of the products of a lane's 4 unsigned bytes of u with the signed bytes of s.
FL_INLINE IVec dot_bytes(IVec acc, IVec u, IVec s) {
  // GCC 12 copies and spills the accumulators of a tile around the intrinsic.
  __asm__("vpdpbusd %2, %1, %0" : "+v"(acc.v) : "v"(u.v), "v"(s.v));
  return acc;
}
FL_INLINE IVec repeated_bytes(const std::uint8_t* p) {
  return {_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
FL_INLINE IVec lookup_bytes(IVec table, IVec index) { return {_mm512_shuffle_epi8(table.v, index.v)}; }

// ---- comparison: false where either is NaN ----------------------------------------------------------
FL_INLINE Mask less(Vec a, Vec b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
FL_INLINE Mask less_equal(Vec a, Vec b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LE_OQ)}; }
FL_INLINE Mask equal(Vec a, Vec b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)}; }
FL_INLINE Mask is_nan(Vec a) { return {_mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q)}; }
FL_INLINE Mask equal(IVec a, IVec b) { return {_mm512_cmpeq_epi32_mask(a.v, b.v)}; }
/// a where the mask is set, else b.
FL_INLINE Vec select(Mask m, Vec a, Vec b) { return {_mm512_mask_blend_ps(m.m, b.v, a.v)}; }
FL_INLINE IVec select(Mask m, IVec a, IVec b) { return {_mm512_mask_blend_epi32(m.m, b.v, a.v)}; }
/// table[index & 15] in every lane.
FL_INLINE Vec lookup(Vec table, IVec index) { return {_mm512_permutexvar_ps(index.v, table.v)}; }
/// Lanes 2i and 2i + 1 change places.
FL_INLINE Vec swap_neighbours(Vec a) { return {_mm512_permute_ps(a.v, 0xb1)}; }
/// Lane j of row i becomes lane i of row j. Moves bits, whatever they mean.
FL_INLINE void transpose(Vec (&rows)[kLanes]) {
  __m512 a[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; i += 2) {  // 2 x 2
    a[i] = _mm512_unpacklo_ps(rows[i].v, rows[i + 1].v);
    a[i + 1] = _mm512_unpackhi_ps(rows[i].v, rows[i + 1].v);
  }
  __m512 b[kLanes];
  const auto low = [](__m512 x, __m512 y) {
    return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(x), _mm512_castps_pd(y)));
  };
  const auto high = [](__m512 x, __m512 y) {
    return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(x), _mm512_castps_pd(y)));
  };
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; i += 4) {  // b[i + k]: column k of each 128-bit part, from rows i to i + 3
    b[i] = low(a[i], a[i + 2]);
    b[i + 1] = high(a[i], a[i + 2]);
    b[i + 2] = low(a[i + 1], a[i + 3]);
    b[i + 3] = high(a[i + 1], a[i + 3]);
  }
#pragma GCC unroll 16
  for (int k = 0; k < 4; ++k) {  // the 128-bit parts, 4 x 4
    const __m512 even_low = _mm512_shuffle_f32x4(b[k], b[4 + k], 0x88);
    const __m512 odd_low = _mm512_shuffle_f32x4(b[k], b[4 + k], 0xdd);
    const __m512 even_high = _mm512_shuffle_f32x4(b[8 + k], b[12 + k], 0x88);
    const __m512 odd_high = _mm512_shuffle_f32x4(b[8 + k], b[12 + k], 0xdd);
    rows[k].v = _mm512_shuffle_f32x4(even_low, even_high, 0x88);
    rows[8 + k].v = _mm512_shuffle_f32x4(even_low, even_high, 0xdd);
    rows[4 + k].v = _mm512_shuffle_f32x4(odd_low, odd_high, 0x88);
    rows[12 + k].v = _mm512_shuffle_f32x4(odd_low, odd_high, 0xdd);
  }
}

// ---- reductions: halves are folded, 16 -> 8 -> 4 -> 2 -> 1; lane i meets lane i + half --------------
FL_INLINE float reduce_add(Vec a) {
  const __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_add_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_shuffle_ps(d, d, 1)));
}
FL_INLINE float reduce_max(Vec a) {
  const __m256 b = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_max_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_max_ss(d, _mm_shuffle_ps(d, d, 1)));
}

// ---- narrow floats in memory ------------------------------------------------------------------------
FL_INLINE Vec load_bf16(const std::uint16_t* p) {
  const __m256i h = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16))};
}
FL_INLINE Vec load_bf16_n(const std::uint16_t* p, int n) {
  const __m256i h = _mm256_maskz_loadu_epi16(first_lanes(n).m, p);
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16))};
}
FL_INLINE Vec load_f16(const std::uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
FL_INLINE void store_halves(std::uint16_t* p, IVec a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(a.v));
}
FL_INLINE void store_halves_n(std::uint16_t* p, IVec a, int n) {
  _mm256_mask_storeu_epi16(p, first_lanes(n).m, _mm512_cvtepi32_epi16(a.v));
}

// ---- dot products of bf16 pairs; the rounding model is stated in simd_generic.h ---------------------
FL_INLINE Pairs load_pairs(const std::uint16_t* p) { return {_mm512_loadu_si512(p)}; }
FL_INLINE Pairs load_pairs_n(const std::uint16_t* p, int halves) {
  const auto m = halves >= 32 ? ~__mmask32{0} : static_cast<__mmask32>((1U << halves) - 1U);
  return {_mm512_maskz_loadu_epi16(m, p)};
}
FL_INLINE Pairs broadcast_pair(const std::uint16_t* p) {
  std::int32_t pair;
  __builtin_memcpy(&pair, p, sizeof(pair));
  return {_mm512_set1_epi32(pair)};
}
FL_INLINE void store_pairs(std::uint16_t* p, Pairs a) { _mm512_storeu_si512(p, a.v); }
/// Pairs (a_i, b_i) of single elements. Within each group of 8, `low` gets the first 4 and `high` the last 4.
FL_INLINE void interleave(Pairs a, Pairs b, Pairs& low, Pairs& high) {
  low.v = _mm512_unpacklo_epi16(a.v, b.v);
  high.v = _mm512_unpackhi_epi16(a.v, b.v);
}
FL_INLINE Vec dot_pairs(Vec acc, Pairs a, Pairs b) {
  return {_mm512_dpbf16_ps(acc.v, reinterpret_cast<__m512bh>(a.v), reinterpret_cast<__m512bh>(b.v))};
}

/// What the CPU must be told around dot_pairs, or around fma in its place: nothing, MXCSR has no say in it.
FL_INLINE unsigned enter_bf16_mode() { return 0; }
FL_INLINE void leave_bf16_mode(unsigned) {}

}  // namespace firstlight::FL_ISA_NS

#include "device/cpu/simd_common.h"  // IWYU pragma: export
