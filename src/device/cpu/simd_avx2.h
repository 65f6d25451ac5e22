// The vector vocabulary on AVX2 + FMA + F16C: 16 floats are two ymm registers.
// Every header simd_*.h defines the same names with the same bits; README.md lists them.
// Include only from a *_avx2.cc file.
#pragma once

#include <immintrin.h>

#include <cstdint>

#ifdef FL_ISA_NS
#error "one instruction set per translation unit"
#endif
#define FL_ISA_NS avx2
#define FL_ISA_NAME "avx2"
#define FL_INLINE static inline __attribute__((always_inline))

#include "device/cpu/simd_dot_model.h"

namespace firstlight::FL_ISA_NS {

constexpr int kLanes = 16;

struct Vec {
  __m256 lo, hi;
};
struct IVec {
  __m256i lo, hi;
};
/// All bits of a lane set or none.
struct Mask {
  __m256 lo, hi;
};
/// 16 pairs of bf16: lane i holds elements 2i (low half) and 2i + 1 (high half).
struct Pairs {
  __m256i lo, hi;
};

FL_INLINE Mask mask_of(__m256i lo, __m256i hi) { return {_mm256_castsi256_ps(lo), _mm256_castsi256_ps(hi)}; }
FL_INLINE __m256i as_int(__m256 a) { return _mm256_castps_si256(a); }
FL_INLINE __m256 as_float(__m256i a) { return _mm256_castsi256_ps(a); }

// ---- lanes ----------------------------------------------------------------------------------------
FL_INLINE Mask first_lanes(int n) {
  const __m256i count = _mm256_set1_epi32(n);
  return mask_of(_mm256_cmpgt_epi32(count, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
                 _mm256_cmpgt_epi32(count, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15)));
}
FL_INLINE unsigned bits(Mask a) {
  return static_cast<unsigned>(_mm256_movemask_ps(a.lo)) |
         (static_cast<unsigned>(_mm256_movemask_ps(a.hi)) << 8);
}
FL_INLINE bool any(Mask a) { return bits(a) != 0; }
FL_INLINE bool all(Mask a) { return bits(a) == 0xffffU; }
FL_INLINE Mask operator&(Mask a, Mask b) { return {_mm256_and_ps(a.lo, b.lo), _mm256_and_ps(a.hi, b.hi)}; }
FL_INLINE Mask operator|(Mask a, Mask b) { return {_mm256_or_ps(a.lo, b.lo), _mm256_or_ps(a.hi, b.hi)}; }
FL_INLINE Mask operator~(Mask a) {
  const __m256 ones = as_float(_mm256_set1_epi32(-1));
  return {_mm256_xor_ps(a.lo, ones), _mm256_xor_ps(a.hi, ones)};
}

/// Whether the compiler knows that all lanes are meant: a mask would be made and obeyed all the same.
FL_INLINE bool known_whole(int n) { return __builtin_constant_p(n) && n >= kLanes; }

// ---- memory: no alignment needed; the _n forms touch n <= 16 elements and fill with zero ----------
FL_INLINE Vec load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
FL_INLINE Vec load_n(const float* p, int n) {
  if (known_whole(n)) return load(p);
  const Mask m = first_lanes(n);
  return {_mm256_maskload_ps(p, as_int(m.lo)), _mm256_maskload_ps(p + 8, as_int(m.hi))};
}
FL_INLINE void store(float* p, Vec a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
FL_INLINE void store_n(float* p, Vec a, int n) {
  if (known_whole(n)) return store(p, a);
  const Mask m = first_lanes(n);
  _mm256_maskstore_ps(p, as_int(m.lo), a.lo);
  _mm256_maskstore_ps(p + 8, as_int(m.hi), a.hi);
}
FL_INLINE Vec broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
FL_INLINE Vec zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
FL_INLINE __m256i load_si256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
FL_INLINE IVec load_int(const std::int32_t* p) { return {load_si256(p), load_si256(p + 8)}; }
FL_INLINE void store_int(std::int32_t* p, IVec a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.lo);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), a.hi);
}
FL_INLINE IVec broadcast_int(std::int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
FL_INLINE IVec load_u8(const std::uint8_t* p) {
  const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepu8_epi32(b), _mm256_cvtepu8_epi32(_mm_srli_si128(b, 8))};
}
FL_INLINE void store_bytes(std::int8_t* p, IVec a) {
  const __m256i halves = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.lo, a.hi), 0xd8);
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}
FL_INLINE void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
/// Into the second level: what is wanted after other work that needs the first.
FL_INLINE void prefetch_later(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

// ---- arithmetic: IEEE single, round to nearest even -------------------------------------------------
FL_INLINE Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
FL_INLINE Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
FL_INLINE Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
FL_INLINE Vec operator/(Vec a, Vec b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
/// a * b + c, rounded once.
FL_INLINE Vec fma(Vec a, Vec b, Vec c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
FL_INLINE Vec sqrt(Vec a) { return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
/// a > b ? a : b in every lane, so b where either is NaN.
FL_INLINE Vec max(Vec a, Vec b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
/// a < b ? a : b in every lane, so b where either is NaN.
FL_INLINE Vec min(Vec a, Vec b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }

// ---- integers -------------------------------------------------------------------------------------
FL_INLINE IVec operator+(IVec a, IVec b) {
  return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
FL_INLINE IVec operator-(IVec a, IVec b) {
  return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)};
}
FL_INLINE IVec operator&(IVec a, IVec b) {
  return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
FL_INLINE IVec operator|(IVec a, IVec b) {
  return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}
FL_INLINE IVec operator^(IVec a, IVec b) {
  return {_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)};
}
template <int N>
FL_INLINE IVec shift_left(IVec a) {
  return {_mm256_slli_epi32(a.lo, N), _mm256_slli_epi32(a.hi, N)};
}
/// Logical: zeros enter from the left.
template <int N>
FL_INLINE IVec shift_right(IVec a) {
  return {_mm256_srli_epi32(a.lo, N), _mm256_srli_epi32(a.hi, N)};
}
template <int N>
FL_INLINE IVec shift_right_signed(IVec a) {
  return {_mm256_srai_epi32(a.lo, N), _mm256_srai_epi32(a.hi, N)};
}
alignas(32) static constexpr std::uint32_t kHighHalves[8] = {
    0xffff0000U, 0xffff0000U, 0xffff0000U, 0xffff0000U, 0xffff0000U, 0xffff0000U, 0xffff0000U, 0xffff0000U};
FL_INLINE __m256i high_halves_8(__m256i a) {
  // From memory by force: the compiler would keep the constant in a register that a full GEMM tile lacks.
  __asm__("vpand %1, %0, %0" : "+x"(a) : "m"(kHighHalves));
  return a;
}
/// Clears the low half of every lane.
FL_INLINE IVec high_halves(IVec a) { return {high_halves_8(a.lo), high_halves_8(a.hi)}; }
FL_INLINE IVec as_int(Vec a) { return {as_int(a.lo), as_int(a.hi)}; }
FL_INLINE Vec as_float(IVec a) { return {as_float(a.lo), as_float(a.hi)}; }
/// Rounds to nearest even; INT32_MIN for NaN and values outside int32.
FL_INLINE IVec to_int(Vec a) { return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)}; }
FL_INLINE Vec to_float(IVec a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
/// The nearest integer, ties to even, with the sign of a.
FL_INLINE Vec round_even(Vec a) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(a.lo, kMode), _mm256_round_ps(a.hi, kMode)};
}
/// a 2^n, rounded once, for integers n of [-160, 160] and a of [1/2, 2]; NaN where either is NaN.
FL_INLINE Vec times_power(Vec a, Vec n) {
  // In two factors, because the exponent of one ends at -126 and 127: only the last product rounds.
  const IVec power = to_int(n);
  const IVec half = shift_right_signed<1>(power);
  const IVec bias = broadcast_int(127);
  return a * as_float(shift_left<23>(half + bias)) * as_float(shift_left<23>(power - half + bias));
}

FL_INLINE __m256i dot_bytes_8(__m256i acc, __m256i u, __m256i s) {
  return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(u, s), _mm256_set1_epi16(1)));
}
FL_INLINE IVec dot_bytes(IVec acc, IVec u, IVec s) {
  return {dot_bytes_8(acc.lo, u.lo, s.lo), dot_bytes_8(acc.hi, u.hi, s.hi)};
}
FL_INLINE IVec repeated_bytes(const std::uint8_t* p) {
  const __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return {t, t};
}
FL_INLINE IVec lookup_bytes(IVec table, IVec index) {
  return {_mm256_shuffle_epi8(table.lo, index.lo), _mm256_shuffle_epi8(table.hi, index.hi)};
}

// ---- comparison: false where either is NaN ----------------------------------------------------------
FL_INLINE Mask less(Vec a, Vec b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)};
}
FL_INLINE Mask less_equal(Vec a, Vec b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_LE_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LE_OQ)};
}
FL_INLINE Mask equal(Vec a, Vec b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_EQ_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_EQ_OQ)};
}
FL_INLINE Mask is_nan(Vec a) {
  return {_mm256_cmp_ps(a.lo, a.lo, _CMP_UNORD_Q), _mm256_cmp_ps(a.hi, a.hi, _CMP_UNORD_Q)};
}
FL_INLINE Mask equal(IVec a, IVec b) {
  return mask_of(_mm256_cmpeq_epi32(a.lo, b.lo), _mm256_cmpeq_epi32(a.hi, b.hi));
}
/// a where the mask is set, else b.
FL_INLINE Vec select(Mask m, Vec a, Vec b) {
  return {_mm256_blendv_ps(b.lo, a.lo, m.lo), _mm256_blendv_ps(b.hi, a.hi, m.hi)};
}
FL_INLINE IVec select(Mask m, IVec a, IVec b) { return as_int(select(m, as_float(a), as_float(b))); }
/// table[index & 15] in every lane.
FL_INLINE __m256 lookup_8(Vec table, __m256i index) {
  const __m256 low = _mm256_permutevar8x32_ps(table.lo, index);
  const __m256 high = _mm256_permutevar8x32_ps(table.hi, index);
  return _mm256_blendv_ps(low, high, as_float(_mm256_slli_epi32(index, 28)));
}
FL_INLINE Vec lookup(Vec table, IVec index) { return {lookup_8(table, index.lo), lookup_8(table, index.hi)}; }
/// Lanes 2i and 2i + 1 change places.
FL_INLINE Vec swap_neighbours(Vec a) {
  return {_mm256_permute_ps(a.lo, 0xb1), _mm256_permute_ps(a.hi, 0xb1)};
}
FL_INLINE void transpose_8(__m256 (&r)[8]) {
  __m256 a[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; i += 2) {
    a[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    a[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  __m256 b[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; i += 4) {  // b[i + k]: column k of each half, from rows i to i + 3
    b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
    b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xee);
    b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
    b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xee);
  }
#pragma GCC unroll 8
  for (int k = 0; k < 4; ++k) {
    r[k] = _mm256_permute2f128_ps(b[k], b[4 + k], 0x20);
    r[4 + k] = _mm256_permute2f128_ps(b[k], b[4 + k], 0x31);
  }
}
/// Lane j of row i becomes lane i of row j. Moves bits, whatever they mean.
FL_INLINE void transpose(Vec (&rows)[kLanes]) {
  __m256 part[2][2][8];  // rows from 8 i on, columns from 8 j on
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    part[i / 8][0][i % 8] = rows[i].lo;
    part[i / 8][1][i % 8] = rows[i].hi;
  }
  transpose_8(part[0][0]);
  transpose_8(part[0][1]);
  transpose_8(part[1][0]);
  transpose_8(part[1][1]);
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) rows[i] = {part[0][i / 8][i % 8], part[1][i / 8][i % 8]};
}

// ---- reductions: halves are folded, 16 -> 8 -> 4 -> 2 -> 1; lane i meets lane i + half --------------
FL_INLINE float reduce_add(Vec a) {
  const __m256 b = _mm256_add_ps(a.lo, a.hi);
  const __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_add_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_shuffle_ps(d, d, 1)));
}
FL_INLINE float reduce_max(Vec a) {
  const __m256 b = _mm256_max_ps(a.lo, a.hi);
  const __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_max_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_max_ss(d, _mm_shuffle_ps(d, d, 1)));
}

// ---- narrow floats in memory ------------------------------------------------------------------------
FL_INLINE __m256 widen_bf16(__m128i h) { return as_float(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16)); }
FL_INLINE __m128i load_si128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
FL_INLINE Vec load_bf16(const std::uint16_t* p) {
  return {widen_bf16(load_si128(p)), widen_bf16(load_si128(p + 8))};
}
FL_INLINE Vec load_bf16_n(const std::uint16_t* p, int n) {
  if (known_whole(n)) return load_bf16(p);
  std::uint16_t h[kLanes] = {};
  __builtin_memcpy(h, p, static_cast<std::size_t>(n) * sizeof(h[0]));
  return load_bf16(h);
}
FL_INLINE Vec load_f16(const std::uint16_t* p) {
  return {_mm256_cvtph_ps(load_si128(p)), _mm256_cvtph_ps(load_si128(p + 8))};
}
/// The low half of every lane.
FL_INLINE void store_halves(std::uint16_t* p, IVec a) {
  const __m256i low = _mm256_set1_epi32(0xffff);
  const __m256i packed = _mm256_packus_epi32(_mm256_and_si256(a.lo, low), _mm256_and_si256(a.hi, low));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
}
FL_INLINE void store_halves_n(std::uint16_t* p, IVec a, int n) {
  if (known_whole(n)) return store_halves(p, a);
  std::uint16_t h[kLanes];
  store_halves(h, a);
  __builtin_memcpy(p, h, static_cast<std::size_t>(n) * sizeof(h[0]));
}

// ---- dot products of bf16 pairs: emulated with the bits of vdpbf16ps --------------------------------
FL_INLINE Pairs load_pairs(const std::uint16_t* p) { return {load_si256(p), load_si256(p + 16)}; }
FL_INLINE Pairs load_pairs_n(const std::uint16_t* p, int halves) {
  std::uint16_t h[2 * kLanes] = {};
  __builtin_memcpy(h, p, static_cast<std::size_t>(halves) * sizeof(h[0]));
  return load_pairs(h);
}
FL_INLINE Pairs broadcast_pair(const std::uint16_t* p) {
  std::int32_t pair;
  __builtin_memcpy(&pair, p, sizeof(pair));
  return {_mm256_set1_epi32(pair), _mm256_set1_epi32(pair)};
}
FL_INLINE void store_pairs(std::uint16_t* p, Pairs a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.lo);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 16), a.hi);
}
/// Pairs (a_i, b_i) of single elements. Within each group of 8, `low` gets the first 4 and `high` the last 4.
FL_INLINE void interleave(Pairs a, Pairs b, Pairs& low, Pairs& high) {
  low = {_mm256_unpacklo_epi16(a.lo, b.lo), _mm256_unpacklo_epi16(a.hi, b.hi)};
  high = {_mm256_unpackhi_epi16(a.lo, b.lo), _mm256_unpackhi_epi16(a.hi, b.hi)};
}
FL_INLINE __m256 flush(__m256 x) {
  const __m256i exponent = _mm256_and_si256(as_int(x), _mm256_set1_epi32(0x7f800000));
  const __m256i tiny = _mm256_cmpeq_epi32(exponent, _mm256_setzero_si256());
  return _mm256_andnot_ps(_mm256_andnot_ps(_mm256_set1_ps(-0.0F), as_float(tiny)), x);
}
FL_INLINE __m256 low_half(__m256i p) { return flush(as_float(_mm256_slli_epi32(p, 16))); }
FL_INLINE __m256 high_half(__m256i p) {
  return flush(as_float(_mm256_and_si256(p, _mm256_set1_epi32(static_cast<std::int32_t>(0xffff0000U)))));
}
FL_INLINE __m256 dot_pairs_8(__m256 acc, __m256i a, __m256i b) {
  const __m256 c = flush(acc);
  const __m256 first = _mm256_fmadd_ps(high_half(a), high_half(b), c);
  const __m256 second = _mm256_fmadd_ps(low_half(a), low_half(b), flush(first));
  // A result of exactly 2^-126 may have been rounded up from a tiny one: the scalar model decides.
  const __m256 size_mask = as_float(_mm256_set1_epi32(INT32_MAX));
  const __m256 smallest = _mm256_set1_ps(0x1p-126F);
  const __m256 doubtful = _mm256_or_ps(_mm256_cmp_ps(_mm256_and_ps(first, size_mask), smallest, _CMP_EQ_OQ),
                                       _mm256_cmp_ps(_mm256_and_ps(second, size_mask), smallest, _CMP_EQ_OQ));
  if (__builtin_expect(_mm256_movemask_ps(doubtful) == 0, 1)) return flush(second);
  alignas(32) float r[8];
  alignas(32) std::uint32_t x[8];
  alignas(32) std::uint32_t y[8];
  _mm256_store_ps(r, c);
  _mm256_store_si256(reinterpret_cast<__m256i*>(x), a);
  _mm256_store_si256(reinterpret_cast<__m256i*>(y), b);
  for (int i = 0; i < 8; ++i) r[i] = dot_pair(r[i], x[i], y[i]);
  return _mm256_load_ps(r);
}
FL_INLINE Vec dot_pairs(Vec acc, Pairs a, Pairs b) {
  return {dot_pairs_8(acc.lo, a.lo, b.lo), dot_pairs_8(acc.hi, a.hi, b.hi)};
}

/// Denormals in and out are zero until leave_bf16_mode(): two fma on widened values, odd element first, are
/// dot_pairs then. Loops in between must not be inlined, so that no other arithmetic drifts into that scope.
FL_INLINE unsigned enter_bf16_mode() {
  constexpr unsigned kFlushToZero = 0x8000;
  constexpr unsigned kDenormalsAreZero = 0x0040;
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(saved | kFlushToZero | kDenormalsAreZero);
  return saved;
}
FL_INLINE void leave_bf16_mode(unsigned saved) { _mm_setcsr(saved); }

}  // namespace firstlight::FL_ISA_NS

#include "device/cpu/simd_common.h"  // IWYU pragma: export
