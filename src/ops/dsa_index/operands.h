// How exact scores read queries and keys. A step of a dot product takes 4 bytes of a key as cached, and one
// or two vectors of cells of 4 bytes, one for each of 16 heads. Include after a simd_<isa>.h.
#pragma once

#ifndef FL_ISA_NS
#error "include a simd_<isa>.h first"
#endif

#include <cstdint>

namespace firstlight::FL_ISA_NS {

constexpr std::int64_t kCellBytes = 4;

FL_INLINE std::int64_t up_to(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; }

/// f32: a channel a step.
struct F32Keys {
  using Cells = Vec;
  static constexpr std::int64_t kChannels = 1;  // of a query's cell
  static constexpr std::int64_t kVectors = 1;   // of a query's cells, in a step
  static constexpr double kTiny = 0x1p-149;     // what an operation may lose below the normal numbers

  FL_INLINE unsigned enter() { return 0; }
  FL_INLINE void leave(unsigned) {}
  FL_INLINE Cells load_cells(const float* p, std::int64_t) { return load(p); }
  FL_INLINE Cells broadcast_cell(const std::uint8_t* p) {
    return broadcast(*reinterpret_cast<const float*>(p));
  }
  FL_INLINE Vec dot(Vec sum, Cells a, Cells b) { return fma(a, b, sum); }
  /// 16 cells of a query, from `x` on, where `left` channels are left.
  FL_INLINE Vec cells_of(const float* x, std::int64_t left) {
    return load_n(x, left < kLanes ? static_cast<int>(left) : kLanes);
  }
  /// The number that takes part in products.
  FL_INLINE Vec effective(Vec x) { return x; }
  FL_INLINE Vec load_values(const std::uint8_t* key, std::int64_t i, int n) {
    return load_n(reinterpret_cast<const float*>(key) + i, n);
  }
};

FL_INLINE Vec without_denormals(Vec x) { return select(less(abs(x), broadcast(0x1p-126F)), zero(), x); }

/// What the forms of bf16 have in common.
struct Bf16Keys {
  static constexpr double kTiny = 0x1p-126;

  FL_INLINE unsigned enter() { return enter_bf16_mode(); }
  FL_INLINE void leave(unsigned mode) { leave_bf16_mode(mode); }
  FL_INLINE Vec effective(Vec x) { return without_denormals(round_to_bf16(x)); }
  FL_INLINE Vec load_values(const std::uint8_t* key, std::int64_t i, int n) {
    return without_denormals(load_bf16_n(reinterpret_cast<const std::uint16_t*>(key) + i, n));
  }
};

/// bf16, two channels a step.
struct PairKeys : Bf16Keys {
  using Cells = Pairs;
  static constexpr std::int64_t kChannels = 2;
  static constexpr std::int64_t kVectors = 1;

  FL_INLINE Cells load_cells(const float* p, std::int64_t) {
    return load_pairs(reinterpret_cast<const std::uint16_t*>(p));
  }
  FL_INLINE Cells broadcast_cell(const std::uint8_t* p) {
    return broadcast_pair(reinterpret_cast<const std::uint16_t*>(p));
  }
  FL_INLINE Vec dot(Vec sum, Cells a, Cells b) { return dot_pairs(sum, a, b); }
  FL_INLINE Vec cells_of(const float* x, std::int64_t left) {
    alignas(64) std::uint16_t halves[2 * kLanes];
    store_bf16(halves, F32Keys::cells_of(x, left));
    store_bf16(halves + kLanes, left > kLanes ? F32Keys::cells_of(x + kLanes, left - kLanes) : zero());
    return load(reinterpret_cast<const float*>(halves));
  }
};

#if defined(__AVX2__) && !defined(__AVX512F__)
/// bf16 where pair products are slow: two fma on widened channels, odd one first, are the chain of dot_pairs.
/// A query's cells of a step are f32, odd and even apart; a key's are widened on their way.
struct WidenedKeys : Bf16Keys {
  struct Cells {
    Vec odd, even;
  };
  static constexpr std::int64_t kChannels = 1;
  static constexpr std::int64_t kVectors = 2;

  FL_INLINE Cells load_cells(const float* p, std::int64_t stride) { return {load(p), load(p + stride)}; }
  FL_INLINE __m256i broadcast_cell(const std::uint8_t* p) {
    std::int32_t pair;
    __builtin_memcpy(&pair, p, sizeof(pair));
    return _mm256_set1_epi32(pair);
  }
  FL_INLINE Vec dot(Vec sum, Cells q, __m256i k) {
    const __m256 odd = _mm256_castsi256_ps(_mm256_and_si256(k, _mm256_set1_epi32(~0xffff)));
    const __m256 even = _mm256_castsi256_ps(_mm256_slli_epi32(k, 16));
    const Vec first = fma(q.odd, {odd, odd}, sum);
    return fma(q.even, {even, even}, first);
  }
  FL_INLINE Vec cells_of(const float* x, std::int64_t left) {
    return swap_neighbours(round_to_bf16(F32Keys::cells_of(x, left)));
  }
};
using NarrowKeys = WidenedKeys;
#else
using NarrowKeys = PairKeys;  // in plain C++ an emulation with the logic of AVX-512
#endif

}  // namespace firstlight::FL_ISA_NS
