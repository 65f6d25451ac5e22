// What the parts of mla share: sizes, kernels, and where cached rows lie.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/round_up.h"
#include "device/cpu/kernels.h"
#include "device/cpu/packed_matrix.h"
#include "ops/kernel.h"
#include "ops/mla/kernels.h"

namespace firstlight {

/// A page of the cache is a tile.
static_assert(kMlaTileRows == kPageTokens);
struct MlaSetup {
  explicit MlaSetup(const KernelContext& context);

  const MlaKernels& kernels;
  const MlaOperands& operands;
  const CpuKernels& gemm;
  Arithmetic arithmetic;
  bool wide;  // what meets kv_b in 8 bits has 16
  std::int64_t heads, nope, rope, v, latent;
  std::int64_t padded;  // elements of a cached row
  float scale;
  CachePlace place;
  int threads;
  std::int64_t step_rows;  // at most

  [[nodiscard]] std::int64_t cached_bytes() const {
    return padded * static_cast<std::int64_t>(dtype_size(place.dtype));
  }
  [[nodiscard]] std::byte* cached_row(const Step& step, const std::int64_t* pages,
                                      std::int64_t position) const {
    return reinterpret_cast<std::byte*>(step.page(pages[position / kPageTokens])) + place.offset +
           position % kPageTokens * cached_bytes();
  }
};

/// `lanes` queries' softmax in memory; values start on a cache line.
constexpr std::int64_t partial_floats(std::int64_t lanes, std::int64_t value_stride) {
  return 2 * round_up(lanes, 16) + lanes * value_stride;
}
inline MlaPartial partial_at(float* memory, std::int64_t lanes) {
  const std::int64_t padded = round_up(lanes, 16);
  return {memory, memory + padded, memory + 2 * padded};
}
/// The same from query `lane` on; a multiple of 16 where a tile is attended.
inline MlaPartial partial_from(const MlaPartial& p, std::int64_t lane, std::int64_t value_stride) {
  return {p.max + lane, p.sum + lane, p.values + lane * value_stride};
}

/// A table of `Rows` rows and the slots behind them, or of fewer: `count`, the last of which is repeated.
template <std::int64_t Rows>
using MlaRowTable = std::array<const std::byte*, static_cast<std::size_t>(Rows + kMlaSpareSlots)>;
inline void repeat_last(std::span<const std::byte*> table, std::int64_t count) {
  std::fill(table.begin() + count, table.end(), table[static_cast<std::size_t>(count - 1)]);
}

}  // namespace firstlight
