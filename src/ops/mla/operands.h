// How the loops of mla read what they multiply. One step of a chain is a cell: a query's (or a weight's) part
// of it takes 4 bytes, a row's part is broadcast from memory. Include after a simd_<isa>.h.
#pragma once

#ifndef FL_ISA_NS
#error "include a simd_<isa>.h first"
#endif

#include <cstddef>
#include <cstdint>

#include "device/cpu/vec_math.h"
#include "ops/mla/weights.h"

namespace firstlight::FL_ISA_NS {

FL_INLINE std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
FL_INLINE const float* floats(const std::byte* p) { return reinterpret_cast<const float*>(p); }
FL_INLINE float* floats(std::byte* p) { return reinterpret_cast<float*>(p); }
FL_INLINE const std::uint16_t* halves(const std::byte* p) {
  return reinterpret_cast<const std::uint16_t*>(p);
}
FL_INLINE std::uint16_t* halves(std::byte* p) { return reinterpret_cast<std::uint16_t*>(p); }

constexpr std::int64_t kCellBytes = 4;
constexpr std::int64_t kCellsBytes = kCellBytes * kLanes;  // of 16 queries

/// bf16, two elements a step.
struct PairOperands {
  using Cells = Pairs;
  static constexpr std::int64_t kElementBytes = 2;
  static constexpr bool kStored = true;
  /// Values of two rows are interleaved to pairs, once a tile.
  static constexpr bool kInterleaved = true;

  FL_INLINE unsigned enter() { return enter_bf16_mode(); }
  FL_INLINE void leave(unsigned mode) { leave_bf16_mode(mode); }
  FL_INLINE Cells load_cells(const std::byte* p) { return load_pairs(halves(p)); }
  FL_INLINE Cells broadcast_cell(const std::byte* p) { return broadcast_pair(halves(p)); }
  FL_INLINE Vec dot(Vec sum, Cells a, Cells b) { return dot_pairs(sum, a, b); }

  FL_INLINE Vec weight(Vec x) { return coarse_exp(x); }
  /// Weights of rows 2i and 2i + 1, rounded, into the cells of a pair.
  FL_INLINE void put_weights(std::byte* cells, std::int64_t /*row_bytes*/, Vec even, Vec odd) {
    store_int(reinterpret_cast<std::int32_t*>(cells), shift_right<16>(as_int(even)) | as_int(odd));
  }
  /// 16 consecutive cells of a query, from 32 elements of which n exist.
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
  FL_INLINE void put_row(std::byte* out, std::int64_t i, Vec x) { store_bf16(halves(out) + i, x); }
  FL_INLINE void convert(std::byte*, std::int64_t, const std::byte*) {}  // stored rows are operands
  /// 32 columns of values, from the order that `interleave` leaves to the natural one.
  FL_INLINE void natural_order(const float* in, float* out) {
    for (int group = 0; group < 4; ++group) {
      __builtin_memcpy(out + 8 * group, in + 4 * group, 4 * sizeof(float));
      __builtin_memcpy(out + 8 * group + 4, in + kLanes + 4 * group, 4 * sizeof(float));
    }
  }
};

/// f32, one element a step.
struct F32Operands {
  using Cells = Vec;
  static constexpr std::int64_t kElementBytes = 4;
  static constexpr bool kStored = true;
  static constexpr bool kInterleaved = false;

  FL_INLINE unsigned enter() { return 0; }
  FL_INLINE void leave(unsigned) {}
  FL_INLINE Cells load_cells(const std::byte* p) { return load(floats(p)); }
  FL_INLINE Cells broadcast_cell(const std::byte* p) { return broadcast(*floats(p)); }
  FL_INLINE Vec dot(Vec sum, Cells a, Cells b) { return fma(a, b, sum); }
  /// The row whose turn it is at a step of the values' chain.
  FL_INLINE std::int64_t row_of_step(std::int64_t step) { return step; }

  FL_INLINE Vec weight(Vec x) { return exp(x); }
  FL_INLINE void put_weights(std::byte* cells, std::int64_t row_bytes, Vec even, Vec odd) {
    store(floats(cells), even);
    store(floats(cells + row_bytes), odd);
  }
  FL_INLINE Vec cells_of(const float* x, std::int64_t n) {
    return load_n(x, static_cast<int>(smaller(n, kLanes)));
  }
  FL_INLINE void put_row(std::byte* out, std::int64_t i, Vec x) { store(floats(out) + i, x); }
  FL_INLINE void convert(std::byte*, std::int64_t, const std::byte*) {}
  FL_INLINE void natural_order(const float* in, float* out) {
    __builtin_memcpy(out, in, 2 * kLanes * sizeof(float));
  }
};

/// bf16 widened. Neighbours have changed places, elements and rows alike, so that a chain of fma in the order
/// of memory is that of dot_pairs: odd element first.
struct SwappedOperands : F32Operands {
  static constexpr bool kStored = false;

  FL_INLINE unsigned enter() { return enter_bf16_mode(); }
  FL_INLINE void leave(unsigned mode) { leave_bf16_mode(mode); }
  FL_INLINE std::int64_t row_of_step(std::int64_t step) { return step ^ 1; }

  FL_INLINE Vec weight(Vec x) { return coarse_exp(x); }
  FL_INLINE void put_weights(std::byte* cells, std::int64_t row_bytes, Vec even, Vec odd) {
    store(floats(cells), odd);
    store(floats(cells + row_bytes), even);
  }
  FL_INLINE Vec cells_of(const float* x, std::int64_t n) {
    return swap_neighbours(round_to_bf16(F32Operands::cells_of(x, n)));
  }
  FL_INLINE void put_row(std::byte* out, std::int64_t i, Vec x) {
    store(floats(out) + i, swap_neighbours(round_to_bf16(x)));
  }
  FL_INLINE void convert(std::byte* out, std::int64_t i, const std::byte* row) {
    store(floats(out) + i, swap_neighbours(load_bf16(halves(row) + i)));
  }
  FL_INLINE void natural_order(const float* in, float* out) {
    store(out, swap_neighbours(load(in)));
    store(out + kLanes, swap_neighbours(load(in + kLanes)));
  }
};

#if defined(__AVX2__) && !defined(__AVX512F__)
using Bf16Operands = SwappedOperands;
#else
using Bf16Operands = PairOperands;  // in plain C++ an emulation with the logic of AVX-512
#endif

}  // namespace firstlight::FL_ISA_NS
