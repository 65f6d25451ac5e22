// The inner loops of mla, compiled once per instruction set.
//
// Cached or expanded rows become operands, which is what the loops multiply:
//   f32 mode                     f32 rows
//   bf16 mode                    bf16 rows, multiplied by dot_pairs
//   bf16 mode where that is slow f32 rows whose neighbours 2i and 2i + 1 have changed places (AVX2)
// Queries lie as panels: per 16 of them, per step (one f32, or two bf16), one cell of 4 bytes a query.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/dispatch.h"

namespace firstlight {

/// Rows of a tile.
inline constexpr std::int64_t kMlaTileRows = 64;
/// Tiles of a partition. Long enough that merging is noise, short enough to share a row's context evenly
/// among threads. Part of the arithmetic: changing it changes bits.
inline constexpr std::int64_t kMlaPartitionTiles = 4;
inline constexpr std::int64_t kMlaPartitionRows = kMlaPartitionTiles * kMlaTileRows;
/// Slots of a table of rows after the last row, which repeat it.
inline constexpr std::int64_t kMlaSpareSlots = 8;
/// Queries that meet a tile together: four vectors.
inline constexpr std::int64_t kMlaMaxQueries = 64;
/// The values of a query are padded to whole blocks of so many columns.
inline constexpr std::int64_t kMlaColumnBlock = 64;

/// Softmax of some queries over some rows, before division: values = sum_s p_s c_s, p_s = exp(score_s - max).
struct MlaPartial {
  float* max;     // [queries rounded up to 16]
  float* sum;     // [queries rounded up to 16]
  float* values;  // [queries, value_stride], columns in an order that only `finish` knows
};

/// Some queries against tiles of one partition.
struct MlaTiles {
  const std::byte* const* keys;    // [count to whole tiles + kMlaSpareSlots] operands of key_width elements
  const std::byte* const* values;  // [count to whole tiles + kMlaSpareSlots] operands; may be `keys`
  std::int64_t count;              // rows that some query sees, up to kMlaPartitionRows
  std::int64_t key_width;          // elements, a multiple of 16
  std::int64_t value_width;        // elements that may be read, a multiple of 16
  std::int64_t columns;            // leading elements that are values
  const std::byte* queries;        // panels
  std::int64_t lanes;              // queries, up to kMlaMaxQueries
  const float* visible;            // [lanes rounded up to 16] rows that a query sees: the first so many
  float scale;
  bool first;  // `running` holds nothing yet
  MlaPartial running;
  std::int64_t value_stride;     // floats from one query's values to the next
  const std::byte* const* next;  // [kMlaTileRows + kMlaSpareSlots] what is read then, to be fetched meanwhile
  std::int64_t next_bytes;       // of one of those rows
};

/// What depends on the form of operands.
struct MlaOperands {
  std::int64_t element_bytes;  // of an operand's element: 2 or 4
  bool stored;                 // cached rows are operands as they lie
  /// Cached rows [count] of `width` (a multiple of 16) to operands, one behind the other. Unless `stored`.
  void (*convert)(const std::byte* const* rows, std::int64_t count, std::int64_t width, std::byte* out);
  /// One f32 row of `count` elements, rounded in bf16 mode, to an operand padded with zeros to `width`.
  void (*round)(const float* in, std::int64_t count, std::int64_t width, std::byte* out);
  /// Queries [lanes], f32, `count` elements each, rounded in bf16 mode, to panels padded with zeros to
  /// `width` elements and 16 queries.
  void (*pack)(const float* const* queries, std::int64_t lanes, std::int64_t count, std::int64_t width,
               std::byte* panels);
  /// Merges tiles into `running`; bits do not depend on how many are attended at once.
  void (*attend)(const MlaTiles& tiles);
  /// out[i] = values[i] / sum[i], `columns` elements each.
  void (*finish)(const MlaPartial& total, std::int64_t lanes, std::int64_t columns, std::int64_t value_stride,
                 float* const* out);
};

struct MlaKernels {
  MlaOperands f32, bf16;
  /// f32 -> bf16, to nearest even.
  void (*store_bf16_row)(const float* in, std::int64_t count, std::uint16_t* out);
  void (*load_bf16_row)(const std::uint16_t* in, std::int64_t count, float* out);
  /// Merges `part` into `total` for queries [begin, end); with `first` copies it.
  void (*merge)(const MlaPartial& part, const MlaPartial& total, std::int64_t begin, std::int64_t end,
                std::int64_t value_stride, bool first);
};

FL_DECLARE_TABLES(MlaKernels, kMlaKernels)

}  // namespace firstlight
