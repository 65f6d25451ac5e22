// The inner loops of attention, compiled once per instruction set.
#pragma once

#include <cstdint>

#include "ops/contract.h"
#include "ops/dispatch.h"

namespace firstlight {

/// One query head of one row against a page.
struct AttentionQuery {
  const float* q;  // [key_dim]
  int begin, end;  // slots of the page that it sees, begin < end
  bool first;      // its running softmax holds nothing yet
};

/// Running softmax of some queries, before division: values = sum_s exp(score_s - max) v_s.
struct AttentionPartial {
  float* values;  // [queries, columns]
  float* max;     // [queries]
  float* sum;     // [queries]
};

/// Queries of one kv head against one page. Slots that no query sees may hold anything.
template <class Element>
struct AttentionTile {
  const Element* keys;       // [key_dim, 64]
  const Element* values;     // [64, columns]
  const Element* next_keys;  // of the page that comes next; only asked for ahead of time
  std::int64_t key_dim;
  std::int64_t columns;  // a multiple of 16
  const AttentionQuery* queries;
  std::int64_t count;
  float scale;
  float softcap;             // 0: none
  AttentionPartial running;  // of queries[0]: the page is merged into this
};

struct AttentionKernels {
  /// f32 -> bf16, to nearest even.
  void (*round_row)(const float* in, std::int64_t count, std::uint16_t* out);
  /// The same, out[64 i] = in[i].
  void (*round_column)(const float* in, std::int64_t count, std::uint16_t* out);
  void (*attend_f32)(const AttentionTile<float>& tile);
  void (*attend_bf16)(const AttentionTile<std::uint16_t>& tile);
  /// Merges query i of `part` into `total`; with `first` copies it.
  void (*merge)(const AttentionPartial& part, const AttentionPartial& total, std::int64_t i,
                std::int64_t columns, bool first);
  /// out[value_dim] = values / sum of query i; with a sink, its logit joins max and sum first.
  void (*finish)(const AttentionPartial& total, std::int64_t i, std::int64_t columns, const float* sink,
                 std::int64_t value_dim, float* out);
};

FL_DECLARE_TABLES(AttentionKernels, kAttentionKernels)

}  // namespace firstlight
