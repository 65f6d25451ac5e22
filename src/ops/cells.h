// What chains of products over cached rows multiply. One step of a chain is a cell of 4 bytes: an f32, or two
// bf16 that dot_pairs multiplies. A vector holds 16 cells. Include after a simd_<isa>.h.
#pragma once

#ifndef FL_ISA_NS
#error "include a simd_<isa>.h first"
#endif

#include <cstddef>
#include <cstdint>

#include "device/cpu/vec_math.h"
#include "ops/coarse_exp.h"

namespace firstlight::FL_ISA_NS {

FL_INLINE std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
FL_INLINE const float* floats(const std::byte* p) { return reinterpret_cast<const float*>(p); }
FL_INLINE float* floats(std::byte* p) { return reinterpret_cast<float*>(p); }
FL_INLINE const std::uint16_t* halves(const std::byte* p) {
  return reinterpret_cast<const std::uint16_t*>(p);
}
FL_INLINE std::uint16_t* halves(std::byte* p) { return reinterpret_cast<std::uint16_t*>(p); }

constexpr std::int64_t kCellBytes = 4;
constexpr std::int64_t kCellsBytes = kCellBytes * kLanes;

/// bf16, two elements a step.
struct PairCells {
  using Cells = Pairs;
  static constexpr std::int64_t kElementBytes = 2;

  FL_INLINE unsigned enter() { return enter_bf16_mode(); }
  FL_INLINE void leave(unsigned mode) { leave_bf16_mode(mode); }
  FL_INLINE Cells load_cells(const std::byte* p) { return load_pairs(halves(p)); }
  FL_INLINE Cells broadcast_cell(const std::byte* p) { return broadcast_pair(halves(p)); }
  FL_INLINE Vec dot(Vec sum, Cells a, Cells b) { return dot_pairs(sum, a, b); }
  /// exp(x), x <= 0, as values are multiplied by it.
  FL_INLINE Vec weight(Vec x) { return coarse_exp(x); }
  /// 16 consecutive cells from 32 elements of which n > 0 exist, rounded.
  FL_INLINE Vec cells_of(const float* x, std::int64_t n) {
    alignas(64) std::uint16_t h[2 * kLanes];
    const auto count = [&](std::int64_t skipped) {
      const std::int64_t left = n - skipped;
      return static_cast<int>(left < 0 ? 0 : smaller(left, kLanes));
    };
    store_bf16(h, load_n(x, count(0)));
    store_bf16(h + kLanes, count(kLanes) > 0 ? load_n(x + kLanes, count(kLanes)) : zero());
    return load(reinterpret_cast<const float*>(h));
  }
};

/// f32, one element a step.
struct F32Cells {
  using Cells = Vec;
  static constexpr std::int64_t kElementBytes = 4;

  FL_INLINE unsigned enter() { return 0; }
  FL_INLINE void leave(unsigned) {}
  FL_INLINE Cells load_cells(const std::byte* p) { return load(floats(p)); }
  FL_INLINE Cells broadcast_cell(const std::byte* p) { return broadcast(*floats(p)); }
  FL_INLINE Vec dot(Vec sum, Cells a, Cells b) { return fma(a, b, sum); }
  FL_INLINE Vec weight(Vec x) { return exp(x); }
  /// 16 elements of which n > 0 exist.
  FL_INLINE Vec cells_of(const float* x, std::int64_t n) {
    return load_n(x, static_cast<int>(smaller(n, kLanes)));
  }
};

/// bf16 widened, where dot_pairs is slow: a pair is two fma under flush-to-zero, odd element first, which
/// gives the bits of dot_pairs.
struct WidenedCells : F32Cells {
  FL_INLINE unsigned enter() { return enter_bf16_mode(); }
  FL_INLINE void leave(unsigned mode) { leave_bf16_mode(mode); }
  FL_INLINE Vec weight(Vec x) { return coarse_exp(x); }
};

}  // namespace firstlight::FL_ISA_NS
