// What dsa_index needs of an instruction set beyond the common vocabulary: dot products of bytes, integer
// comparison, and lanes pushed together. Include after a simd_<isa>.h. Everything is exact.
#pragma once

#ifndef FL_ISA_NS
#error "include a simd_<isa>.h first"
#endif

#include <cstdint>

namespace firstlight::FL_ISA_NS {

// KeyBytes: four channels of 16 keys. Stored as k + 128, because vpdpbusd multiplies unsigned by signed.
#if defined(__AVX512F__)

struct KeyBytes {
  __m512i v;
};
FL_INLINE KeyBytes load_keys(const std::uint8_t* p) { return {_mm512_loadu_si512(p)}; }
/// `start` takes back what the 128 adds.
FL_INLINE IVec first_sum(std::int32_t start) { return broadcast_int(start); }
FL_INLINE IVec add_dot(IVec sum, KeyBytes k, const std::int8_t* q) {
  std::int32_t quad;
  __builtin_memcpy(&quad, q, sizeof(quad));
  return {_mm512_dpbusd_epi32(sum.v, k.v, _mm512_set1_epi32(quad))};
}
FL_INLINE Mask at_least(IVec a, IVec b) { return {_mm512_cmpge_epi32_mask(a.v, b.v)}; }
FL_INLINE IVec load_int_n(const std::int32_t* p, int n) {
  return {_mm512_maskz_loadu_epi32(first_lanes(n).m, p)};
}
FL_INLINE void store_int_n(std::int32_t* p, IVec a, int n) {
  _mm512_mask_storeu_epi32(p, first_lanes(n).m, a.v);
}
/// The lanes of the mask, first ones first; 16 elements are written.
FL_INLINE void store_packed(std::int32_t* p, IVec a, Mask m) {
  _mm512_storeu_si512(p, _mm512_maskz_compress_epi32(m.m, a.v));
}

#elif defined(__AVX2__)

struct KeyBytes {
  __m256i lo, hi;
};
FL_INLINE KeyBytes load_keys(const std::uint8_t* p) {
  const __m256i flip = _mm256_set1_epi8(static_cast<char>(0x80));
  return {_mm256_xor_si256(load_si256(p), flip), _mm256_xor_si256(load_si256(p + 32), flip)};
}
FL_INLINE IVec first_sum(std::int32_t) { return broadcast_int(0); }
FL_INLINE IVec add_dot(IVec sum, KeyBytes k, const std::int8_t* q) {
  std::int32_t quad;
  __builtin_memcpy(&quad, q, sizeof(quad));
  // |q| (k sign(q)): pairs of products within 2 * 127 * 127 do not saturate 16 bits, as k + 128 would.
  const __m256i x = _mm256_set1_epi32(quad);
  const __m256i size = _mm256_abs_epi8(x);
  const __m256i ones = _mm256_set1_epi16(1);
  const __m256i lo = _mm256_maddubs_epi16(size, _mm256_sign_epi8(k.lo, x));
  const __m256i hi = _mm256_maddubs_epi16(size, _mm256_sign_epi8(k.hi, x));
  return {_mm256_add_epi32(sum.lo, _mm256_madd_epi16(lo, ones)),
          _mm256_add_epi32(sum.hi, _mm256_madd_epi16(hi, ones))};
}
FL_INLINE Mask at_least(IVec a, IVec b) {
  return ~mask_of(_mm256_cmpgt_epi32(b.lo, a.lo), _mm256_cmpgt_epi32(b.hi, a.hi));
}
FL_INLINE IVec load_int_n(const std::int32_t* p, int n) {
  const Mask m = first_lanes(n);
  return {_mm256_maskload_epi32(p, as_int(m.lo)), _mm256_maskload_epi32(p + 8, as_int(m.hi))};
}

#else

struct KeyBytes {
  std::int8_t v[kLanes][4];
};
FL_INLINE KeyBytes load_keys(const std::uint8_t* p) {
  KeyBytes k;
  for (int i = 0; i < 4 * kLanes; ++i) k.v[i / 4][i % 4] = static_cast<std::int8_t>(p[i] - 128);
  return k;
}
FL_INLINE IVec first_sum(std::int32_t) { return broadcast_int(0); }
FL_INLINE IVec add_dot(IVec sum, const KeyBytes& k, const std::int8_t* q) {
  return each_lane<IVec>([&](int i) {
    return sum.v[i] + k.v[i][0] * q[0] + k.v[i][1] * q[1] + k.v[i][2] * q[2] + k.v[i][3] * q[3];
  });
}
FL_INLINE Mask at_least(IVec a, IVec b) {
  return each_bit([&](int i) { return a.v[i] >= b.v[i]; });
}
FL_INLINE IVec load_int_n(const std::int32_t* p, int n) {
  IVec a{};
  __builtin_memcpy(a.v, p, static_cast<std::size_t>(n) * sizeof(p[0]));
  return a;
}

#endif

FL_INLINE IVec first_indices() {
  constexpr std::int32_t kIndices[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return load_int(kIndices);
}

#if !defined(__AVX512F__)
FL_INLINE void store_int_n(std::int32_t* p, IVec a, int n) {
  std::int32_t lanes[kLanes];
  store_int(lanes, a);
  __builtin_memcpy(p, lanes, static_cast<std::size_t>(n) * sizeof(p[0]));
}
FL_INLINE void store_packed(std::int32_t* p, IVec a, Mask m) {
  std::int32_t lanes[kLanes];
  store_int(lanes, a);
  for (unsigned rest = bits(m); rest != 0; rest &= rest - 1) *p++ = lanes[__builtin_ctz(rest)];
}
#endif

}  // namespace firstlight::FL_ISA_NS
