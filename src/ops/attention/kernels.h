// The inner loops of attention, compiled once per instruction set.
//
// The cache holds cells of 4 bytes: one f32, or two bf16 that are multiplied as a pair.
//   keys    [key_steps, 64]: a channel, or a pair of channels, of the 64 slots of a page
//   values  panels of 64 columns, [steps, columns of the panel] each: a slot, or a pair of slots
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/contract.h"
#include "ops/dispatch.h"

namespace firstlight {

/// Queries that meet a page together.
inline constexpr std::int64_t kAttentionMaxQueries = 64;
inline constexpr std::int64_t kAttentionCellBytes = 4;
/// Columns of a panel of values, but for the last one.
inline constexpr std::int64_t kAttentionPanelColumns = 64;

/// One query head of one row against a page.
struct AttentionQuery {
  const std::byte* q;  // as `pack` left it
  int begin, end;      // slots of the page that it sees, begin < end
  bool first;          // its running softmax holds nothing yet
};

/// Lanes over which a query's sum is spread.
inline constexpr std::int64_t kAttentionSumLanes = 16;

/// Running softmax of some queries, before division: values = sum_s exp(score_s - max) v_s.
struct AttentionPartial {
  float* values;  // [queries, columns]
  float* sum;     // [queries, kAttentionSumLanes]
  float* max;     // [queries]
};

/// Queries of one kv head against one page. Slots that a query does not see may hold anything.
struct AttentionTile {
  const std::byte* keys;
  const std::byte* values;
  const std::byte* next_keys;  // of the page that comes next; only asked for ahead of time
  std::int64_t key_steps;
  std::int64_t columns;  // a multiple of 16
  const AttentionQuery* queries;
  std::int64_t count;  // up to kAttentionMaxQueries
  float scale;
  float softcap;             // 0: none
  AttentionPartial running;  // of queries[0]: the page is merged into this
};

/// What depends on the cache's type.
struct AttentionOperands {
  std::int64_t cell_elements;  // 1 or 2
  std::int64_t query_bytes;    // of a packed query, a step
  /// q [key_dim], rounded to bf16 where the cache is, padded with zeros to whole cells.
  void (*pack)(const float* q, std::int64_t key_dim, std::byte* out);
  /// Some channels of keys [rows], `stride` apart, rounded, into neighbouring slots of cells [steps, 64], of
  /// which `cells` is the first. Zeros fill the last cell.
  void (*store_keys)(const float* k, std::int64_t stride, std::int64_t rows, std::int64_t channels,
                     std::byte* cells);
  /// Columns [begin, end), multiples of 16, of a value that is padded with zeros, rounded, into `slot` of a
  /// page's panels. The other slot of a pair keeps its bits.
  void (*store_value)(const float* v, std::int64_t value_dim, std::int64_t begin, std::int64_t end,
                      std::int64_t slot, std::byte* panels);
  void (*attend)(const AttentionTile& tile);
};

struct AttentionKernels {
  AttentionOperands f32, bf16;
  /// Merges query i of `part` into `total`; with `first` copies it.
  void (*merge)(const AttentionPartial& part, const AttentionPartial& total, std::int64_t i,
                std::int64_t columns, bool first);
  /// out[value_dim] = values / sum of query i; with a sink, its logit joins max and sum first.
  void (*finish)(const AttentionPartial& total, std::int64_t i, std::int64_t columns, const float* sink,
                 std::int64_t value_dim, float* out);
};

FL_DECLARE_TABLES(AttentionKernels, kAttentionKernels)

}  // namespace firstlight
