// The inner loops of mla, compiled once per instruction set.
#pragma once

#include <cstdint>

#include "ops/dispatch.h"

namespace firstlight {

/// Softmax over some cached rows, before division: values = sum_s exp(score_s - max) c_s.
struct MlaPartial {
  float* max;     // [heads]
  float* sum;     // [heads]
  float* values;  // [heads, columns]
};

/// Some heads of one query against one tile of at most 64 cached rows.
struct MlaTile {
  const float* const* rows;  // [count rounded up to 4] cached rows [padded], all readable
  std::int64_t count;        // rows that take part
  const float* query;        // [heads, padded]: absorbed query, then its k_pe channels, then zeros
  std::int64_t heads;
  std::int64_t padded;   // a multiple of 16
  std::int64_t columns;  // leading elements of a row that are values; a multiple of 16
  float scale;
  bool first;          // `running` holds nothing yet
  MlaPartial running;  // the tile is merged into this
};

struct MlaKernels {
  /// f32 -> bf16, to nearest even.
  void (*round_row)(const float* in, std::int64_t count, std::uint16_t* out);
  /// bf16 rows [padded] -> f32 [count, padded], exact.
  void (*widen_rows)(const std::uint16_t* const* rows, std::int64_t count, std::int64_t padded, float* out);
  void (*attend_tile)(const MlaTile& tile);
  /// Merges `part` into `total`; with `first` copies it.
  void (*merge)(const MlaPartial& part, const MlaPartial& total, std::int64_t heads, std::int64_t columns,
                bool first);
  /// out[h] = values[h] / sum[h]; heads are out_stride apart.
  void (*finish)(const MlaPartial& total, std::int64_t heads, std::int64_t columns, float* out,
                 std::int64_t out_stride);
};

FL_DECLARE_TABLES(MlaKernels, kMlaKernels)

}  // namespace firstlight
