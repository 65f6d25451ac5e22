// How the loops of attention read what they multiply: cells of 16 slots (or columns) from the cache, a
// query's (or a weight's) part of a step broadcast from memory. Where bf16 is widened a step has two phases,
// odd elements first. Include after a simd_<isa>.h.
#pragma once

#ifndef FL_ISA_NS
#error "include a simd_<isa>.h first"
#endif

#include "ops/cells.h"

namespace firstlight::FL_ISA_NS {

/// 16 cells in memory whose elements outside the mask are zero.
FL_INLINE const std::byte* masked_cells(const std::byte* p, bool low, bool high,
                                        std::int32_t (&room)[kLanes]) {
  if (low && high) return p;
  const std::uint32_t mask = (low ? 0xffffU : 0U) | (high ? 0xffff0000U : 0U);
  store_int(room, load_int(reinterpret_cast<const std::int32_t*>(p)) &
                      broadcast_int(static_cast<std::int32_t>(mask)));
  return reinterpret_cast<const std::byte*>(room);
}

struct F32Panels : F32Cells {
  using Stored = F32Cells;             // what the cache holds
  static constexpr int kElements = 1;  // of a cell
  static constexpr int kPhases = 1;
  static constexpr std::int64_t kStepBytes = 4;  // of a query or a weight

  FL_INLINE Cells load_phase(const std::byte* p, int /*phase*/) { return load_cells(p); }
  FL_INLINE Cells broadcast_phase(const std::byte* p, int /*phase*/) { return broadcast_cell(p); }
  /// 16 elements, of which n are wanted, into a query or weights.
  FL_INLINE void put(std::byte* out, std::int64_t i, Vec x, int n) { store_n(floats(out) + i, x, n); }
  FL_INLINE void put_weights(std::byte* out, std::int64_t i, Vec x) { store(floats(out) + i, x); }
};

struct PairPanels : PairCells {
  using Stored = PairCells;
  static constexpr int kElements = 2;
  static constexpr int kPhases = 1;
  static constexpr std::int64_t kStepBytes = 4;

  FL_INLINE Cells load_phase(const std::byte* p, int /*phase*/) { return load_cells(p); }
  FL_INLINE Cells broadcast_phase(const std::byte* p, int /*phase*/) { return broadcast_cell(p); }
  FL_INLINE void put(std::byte* out, std::int64_t i, Vec x, int n) { store_bf16_n(halves(out) + i, x, n); }
  /// Of weights that are exact in bf16.
  FL_INLINE void put_weights(std::byte* out, std::int64_t i, Vec x) {
    store_halves(halves(out) + i, shift_right<16>(as_int(x)));
  }
};

struct WidenedPanels : WidenedCells {
  using Stored = PairCells;
  static constexpr int kElements = 2;
  static constexpr int kPhases = 2;
  static constexpr std::int64_t kStepBytes = 8;

  FL_INLINE Cells load_phase(const std::byte* p, int phase) { return widened(p, 1 - phase); }
  FL_INLINE Cells broadcast_phase(const std::byte* p, int phase) { return broadcast(floats(p)[1 - phase]); }
  FL_INLINE void put(std::byte* out, std::int64_t i, Vec x, int n) {
    store_n(floats(out) + i, round_to_bf16(x), n);
  }
  FL_INLINE void put_weights(std::byte* out, std::int64_t i, Vec x) { store(floats(out) + i, x); }
};

#if defined(__AVX2__) && !defined(__AVX512F__)
using Bf16Panels = WidenedPanels;
#else
using Bf16Panels = PairPanels;  // in plain C++ an emulation with the logic of AVX-512
#endif

}  // namespace firstlight::FL_ISA_NS
