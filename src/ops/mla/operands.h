// How the loops of mla read what they multiply: a query's (or a weight's) part of a step is one cell of a
// vector, a row's part is broadcast from memory. Include after a simd_<isa>.h.
#pragma once

#ifndef FL_ISA_NS
#error "include a simd_<isa>.h first"
#endif

#include "ops/cells.h"

namespace firstlight::FL_ISA_NS {

/// bf16, two elements a step.
struct PairOperands : PairCells {
  static constexpr bool kStored = true;
  /// Values of two rows are interleaved to pairs, once a tile.
  static constexpr bool kInterleaved = true;

  /// Weights of rows 2i and 2i + 1, rounded, into the cells of a pair.
  FL_INLINE void put_weights(std::byte* cells, std::int64_t /*row_bytes*/, Vec even, Vec odd) {
    store_int(reinterpret_cast<std::int32_t*>(cells), shift_right<16>(as_int(even)) | as_int(odd));
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

/// One element a step: f32, or bf16 widened.
template <class Base>
struct SingleOperands : Base {
  static constexpr bool kStored = true;
  static constexpr bool kInterleaved = false;

  /// The row whose turn it is at a step of the values' chain.
  FL_INLINE std::int64_t row_of_step(std::int64_t step) { return step; }

  FL_INLINE void put_weights(std::byte* cells, std::int64_t row_bytes, Vec even, Vec odd) {
    store(floats(cells), even);
    store(floats(cells + row_bytes), odd);
  }
  FL_INLINE void put_row(std::byte* out, std::int64_t i, Vec x) { store(floats(out) + i, x); }
  FL_INLINE void convert(std::byte*, std::int64_t, const std::byte*) {}
  FL_INLINE void natural_order(const float* in, float* out) {
    __builtin_memcpy(out, in, 2 * kLanes * sizeof(float));
  }
};

using F32Operands = SingleOperands<F32Cells>;

/// Neighbours have changed places, elements and rows alike, so that a chain of fma in the order of memory is
/// that of dot_pairs: odd element first.
struct SwappedOperands : SingleOperands<WidenedCells> {
  static constexpr bool kStored = false;

  FL_INLINE std::int64_t row_of_step(std::int64_t step) { return step ^ 1; }

  FL_INLINE void put_weights(std::byte* cells, std::int64_t row_bytes, Vec even, Vec odd) {
    store(floats(cells), odd);
    store(floats(cells + row_bytes), even);
  }
  FL_INLINE Vec cells_of(const float* x, std::int64_t n) {
    return swap_neighbours(round_to_bf16(SingleOperands::cells_of(x, n)));
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
