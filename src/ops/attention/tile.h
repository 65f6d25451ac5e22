// A page against some queries of one kv head: scores, softmax, weighted values. Include after a simd_<isa>.h.
//
// In scores a lane is a slot, in values a column; nothing but the maximum is taken across lanes. A score is
// one chain over the channels; a value is one chain over the slots that the query sees, which goes on from
// page to page. Which queries, slots and columns are computed together changes no bit, so blocks are as large
// as the registers.
#pragma once

#include "device/cpu/vec_math.h"
#include "ops/attention/kernels.h"
#include "ops/attention/operands.h"

namespace firstlight::FL_ISA_NS {

// Register blocks: queries x vectors. The accumulators fill three quarters of the registers: 24 of 32 zmm, 12
// of 16 ymm (a Vec is two). Plain C++ has no use for a block.
#if defined(__AVX512F__)
constexpr int kQueries = 6;
template <int Queries>
constexpr int kWide = 4;
#elif defined(__AVX2__)
constexpr int kQueries = 6;
template <int Queries>
constexpr int kWide = Queries == 1   ? 4
                      : Queries <= 3 ? 2
                                     : 1;
#else
constexpr int kQueries = 1;
template <int Queries>
constexpr int kWide = 1;
#endif
constexpr int kSlots = kPageTokens;
constexpr int kSlotVecs = kSlots / kLanes;
constexpr float kLowest = -0x1.fffffep127F;
static_assert(kAttentionCellBytes == kCellBytes && kAttentionSumLanes == kLanes);

/// Of a query, for a page.
template <class P>
constexpr std::int64_t kWeightsBytes = kSlots / P::kElements* P::kStepBytes;

/// Cells [steps, some vectors].
struct Panel {
  const std::byte* cells;
  std::int64_t row_bytes;
};

/// What is read after what is being read, asked for meanwhile in even shares: a page lies as two streams, its
/// keys and its values, the next page elsewhere, and the hardware's prefetcher starts anew with each stream.
struct Ahead {
  const std::byte* at;
  std::int64_t rate;  // bytes a step
};

FL_INLINE Ahead ahead_of(const std::byte* at, std::int64_t bytes, std::int64_t steps) {
  return {at, bytes / steps + 1};
}

/// sum[i][v] += chain over steps [begin, end) of coefficients of query i, which are kStepBytes apart.
template <class P, int Queries, int Vecs>
FL_INLINE void multiply(const Panel& panel, Ahead& ahead, std::int64_t begin, std::int64_t end,
                        const std::byte* const (&coefficients)[Queries], Vec (&sum)[Queries][Vecs]) {
  const std::byte* cells = panel.cells + begin * panel.row_bytes;
  const std::byte* later = ahead.at;
  const std::int64_t rate = ahead.rate;
  for (std::int64_t s = begin; s < end; ++s, cells += panel.row_bytes, later += rate) {
    for (std::int64_t i = 0; i < rate; i += kCellsBytes) prefetch_later(later + i);
#pragma GCC unroll 2
    for (int phase = 0; phase < P::kPhases; ++phase) {
      typename P::Cells x[Vecs];
#pragma GCC unroll 16
      for (int v = 0; v < Vecs; ++v) x[v] = P::load_phase(cells + v * kCellsBytes, phase);
#pragma GCC unroll 16
      for (int i = 0; i < Queries; ++i) {
        const auto c = P::broadcast_phase(coefficients[i] + s * P::kStepBytes, phase);
#pragma GCC unroll 16
        for (int v = 0; v < Vecs; ++v) sum[i][v] = P::dot(sum[i][v], x[v], c);
      }
    }
  }
  ahead.at = later;
}

/// Calls body.operator()<Vecs>(vec) for blocks of vectors [begin, end), of Widest at most.
template <int Widest, class Body>
FL_INLINE void each_width(int begin, int end, const Body& body) {
  for (; begin + Widest <= end; begin += Widest) body.template operator()<Widest>(begin);
  if constexpr (Widest > 1) each_width<Widest / 2>(begin, end, body);
}

/// Slots that some query of a block sees, and among them those that all do.
struct Slots {
  int begin, end;
  int all_begin, all_end;  // begin <= all_begin <= all_end <= end
};

template <int Queries>
FL_INLINE Slots seen_slots(const AttentionQuery* queries) {
  Slots s{queries[0].begin, queries[0].end, queries[0].begin, queries[0].end};
  for (int i = 1; i < Queries; ++i) {
    const auto [q, begin, end, first] = queries[i];
    s.begin = begin < s.begin ? begin : s.begin;
    s.end = end > s.end ? end : s.end;
    s.all_begin = begin > s.all_begin ? begin : s.all_begin;
    s.all_end = end < s.all_end ? end : s.all_end;
  }
  return s;
}

/// q . k with slots from vector `vec` on.
template <class P, int Queries, int Vecs>
__attribute__((noinline)) void score_slots(const AttentionTile& t, const AttentionQuery* queries, int vec,
                                           float (*scores)[kSlots], Ahead& ahead) {
  Vec sum[Queries][Vecs];
  const std::byte* q[Queries];
#pragma GCC unroll 16
  for (int i = 0; i < Queries; ++i) {
    q[i] = queries[i].q;
#pragma GCC unroll 16
    for (int v = 0; v < Vecs; ++v) sum[i][v] = zero();
  }
  constexpr std::int64_t kRowBytes = kSlots * kCellBytes;
  const Panel panel{t.keys + vec * kCellsBytes, kRowBytes};
  multiply<P>(panel, ahead, 0, t.key_steps, q, sum);
#pragma GCC unroll 16
  for (int i = 0; i < Queries; ++i) {
#pragma GCC unroll 16
    for (int v = 0; v < Vecs; ++v) store(scores[i] + (vec + v) * kLanes, sum[i][v]);
  }
}

/// Scores that are scaled and capped.
__attribute__((noinline)) inline void cap(float* scores, int count, float scale, float softcap) {
  for (int i = 0; i < count; i += kLanes) {
    store(scores + i, tanh(load(scores + i) * broadcast(scale) / broadcast(softcap)) * broadcast(softcap));
  }
}

/// Scores of a block become weights exp(scale score - max), 0 where nothing is seen; max and sum move on.
/// factors[i]: what query i's older values are multiplied by.
template <class P, int Queries, bool Masked>
__attribute__((noinline)) void softmax(const AttentionTile& t, std::int64_t at, float scale,
                                       const float (&scores)[Queries][kSlots], std::byte* weights,
                                       float (&factors)[kLanes]) {
  const AttentionQuery* queries = t.queries + at;
  float* max_of = t.running.max + at;
  const auto seen = [&](int i, int v) {
    const auto lanes_below = [v](int slot) {
      const int n = slot - v * kLanes;
      return first_lanes(n < 0 ? 0 : n < kLanes ? n : kLanes);
    };
    return lanes_below(queries[i].end) & ~lanes_below(queries[i].begin);
  };
  Vec s[Queries][kSlotVecs];
  float largest[Queries];
#pragma GCC unroll 16
  for (int i = 0; i < Queries; ++i) {
#pragma GCC unroll 16
    for (int v = 0; v < kSlotVecs; ++v) {
      s[i][v] = load(scores[i] + v * kLanes) * broadcast(scale);
      if constexpr (Masked) s[i][v] = select(seen(i, v), s[i][v], broadcast(kLowest));
    }
    const float page = reduce_max(max(max(s[i][0], s[i][1]), max(s[i][2], s[i][3])));
    const float before = queries[i].first ? kLowest : max_of[i];
    largest[i] = before > page ? before : page;
    factors[i] = before - largest[i];
    max_of[i] = largest[i];
  }
  store(factors, exp(load_n(factors, Queries)));
#pragma GCC unroll 16
  for (int i = 0; i < Queries; ++i) {
#pragma GCC unroll 16
    for (int v = 0; v < kSlotVecs; ++v) {
      s[i][v] = P::weight(s[i][v] - broadcast(largest[i]));
      if constexpr (Masked) s[i][v] = select(seen(i, v), s[i][v], zero());
      P::put_weights(weights + i * kWeightsBytes<P>, v * kLanes, s[i][v]);
    }
    // The sum adds what the values are multiplied by: weights sum to one however coarse they are.
    const Vec page = (s[i][0] + s[i][1]) + (s[i][2] + s[i][3]);
    float* sum = t.running.sum + (at + i) * kLanes;
    store(sum, queries[i].first ? page : fma(load(sum), broadcast(factors[i]), page));
  }
}

/// Values of Vecs x 16 columns of a block of queries go on over steps [begin, end), which all queries see. On
/// its own, so that the compiler keeps all sums in registers.
template <class P, int Queries, int Vecs>
__attribute__((noinline)) void add_seen(const Panel& panel, std::int64_t begin, std::int64_t end,
                                        const std::byte* weights, float* values, std::int64_t stride,
                                        Ahead& ahead) {
  Vec sum[Queries][Vecs];
  const std::byte* weights_of[Queries];
#pragma GCC unroll 16
  for (int i = 0; i < Queries; ++i) {
    weights_of[i] = weights + i * kWeightsBytes<P>;
#pragma GCC unroll 16
    for (int v = 0; v < Vecs; ++v) sum[i][v] = load(values + i * stride + v * kLanes);
  }
  multiply<P>(panel, ahead, begin, end, weights_of, sum);
#pragma GCC unroll 16
  for (int i = 0; i < Queries; ++i) {
#pragma GCC unroll 16
    for (int v = 0; v < Vecs; ++v) store(values + i * stride + v * kLanes, sum[i][v]);
  }
}

/// The same over steps that some queries see, wholly or in part, and others do not. What a query does not see
/// has no part in its chain, not even with weight 0: it may be an infinity.
template <class P>
__attribute__((noinline)) void add_edge(const Panel& panel, std::int64_t begin, std::int64_t end,
                                        const AttentionQuery* queries, int count, int vecs,
                                        const std::byte* weights, float* values, std::int64_t stride) {
  alignas(64) std::int32_t room[kLanes];
  for (std::int64_t s = begin; s < end; ++s) {
    const std::byte* cells = panel.cells + s * panel.row_bytes;
    for (int i = 0; i < count; ++i) {
      const auto seen = [&](std::int64_t slot) { return slot >= queries[i].begin && slot < queries[i].end; };
      const bool low = seen(s * P::kElements);
      const bool high = seen(s * P::kElements + P::kElements - 1);
      if (!low && !high) continue;
      const std::byte* weight = weights + i * kWeightsBytes<P> + s * P::kStepBytes;
      for (int v = 0; v < vecs; ++v) {
        const std::byte* x = masked_cells(cells + v * kCellsBytes, low, high, room);
        float* to = values + i * stride + v * kLanes;
        Vec sum = load(to);
#pragma GCC unroll 2
        for (int phase = 0; phase < P::kPhases; ++phase) {
          sum = P::dot(sum, P::load_phase(x, phase), P::broadcast_phase(weight, phase));
        }
        store(to, sum);
      }
    }
  }
}

/// The values of a query that a larger maximum was found for, or that has none yet.
FL_INLINE void rescale(float* values, std::int64_t columns, bool first, float factor) {
  if (!first && factor == 1.0F) return;
  for (std::int64_t c = 0; c < columns; c += kLanes) {
    store(values + c, first ? zero() : load(values + c) * broadcast(factor));
  }
}

/// Weights of a block of queries; their max, sum and older values move on.
template <class P, int Queries>
__attribute__((noinline)) void weigh_block(const AttentionTile& t, std::int64_t at, std::byte* weights,
                                           Ahead& ahead) {
  const Slots slots = seen_slots<Queries>(t.queries + at);
  const bool whole = slots.all_begin == 0 && slots.all_end == kSlots;
  alignas(64) float scores[Queries][kSlots];
  alignas(64) float factors[kLanes] = {};
  if (!whole) __builtin_memset(scores, 0, sizeof(scores));
  const unsigned mode = P::enter();
  each_width<kWide<Queries>>(slots.begin / kLanes, (slots.end + kLanes - 1) / kLanes, [&]<int Vecs>(int vec) {
    score_slots<P, Queries, Vecs>(t, t.queries + at, vec, scores, ahead);
  });
  P::leave(mode);
  if (t.softcap > 0) cap(scores[0], Queries * kSlots, t.scale, t.softcap);
  const float scale = t.softcap > 0 ? 1 : t.scale;
  if (whole) {
    softmax<P, Queries, false>(t, at, scale, scores, weights, factors);
  } else {
    softmax<P, Queries, true>(t, at, scale, scores, weights, factors);
  }
  for (int i = 0; i < Queries; ++i) {
    rescale(t.running.values + (at + i) * t.columns, t.columns, t.queries[at + i].first, factors[i]);
  }
}

/// Values of a block of queries in one panel.
template <class P, int Queries>
FL_INLINE void add_block(const AttentionTile& t, std::int64_t at, const std::byte* weights,
                         std::int64_t column, Ahead& ahead) {
  constexpr int kSteps = kSlots / P::kElements;
  constexpr int kLast = P::kElements - 1;
  const Slots slots = seen_slots<Queries>(t.queries + at);
  const int end = (slots.end + kLast) / P::kElements;
  int all_begin = (slots.all_begin + kLast) / P::kElements;
  int all_end = slots.all_end / P::kElements;
  if (all_begin >= all_end) all_begin = all_end = end;
  const std::int64_t width = smaller(kAttentionPanelColumns, t.columns - column);
  const Panel panel{t.values + column * kSteps * kCellBytes, width * kCellBytes};
  const int vecs = static_cast<int>(width / kLanes);
  float* values = t.running.values + at * t.columns + column;
  const auto edge = [&](int from, int to) {
    if (from < to) add_edge<P>(panel, from, to, t.queries + at, Queries, vecs, weights, values, t.columns);
  };
  edge(slots.begin / P::kElements, all_begin);
  each_width<kWide<Queries>>(0, vecs, [&]<int Vecs>(int vec) {
    const Panel part{panel.cells + vec * kCellsBytes, panel.row_bytes};
    add_seen<P, Queries, Vecs>(part, all_begin, all_end, weights, values + vec * kLanes, t.columns, ahead);
  });
  edge(all_end, end);
}

/// Calls body.operator()<Queries>(at).
template <int Queries, class Body>
FL_INLINE void call_with(std::int64_t queries, std::int64_t at, const Body& body) {
  if constexpr (Queries == 1) {
    body.template operator()<1>(at);
  } else if (queries == Queries) {
    body.template operator()<Queries>(at);
  } else {
    call_with<Queries - 1>(queries, at, body);
  }
}

template <class P>
void attend_tile(const AttentionTile& t) {
  alignas(64) std::byte weights[kAttentionMaxQueries * kWeightsBytes<P>];
  const std::int64_t blocks = (t.count + kQueries - 1) / kQueries;
  const auto each_block = [&](const auto& body) {
    for (std::int64_t b = 0; b < blocks; ++b) {
      const std::int64_t begin = t.count * b / blocks;
      call_with<kQueries>(t.count * (b + 1) / blocks - begin, begin, body);
    }
  };
  int wide = 0;  // of a block
  call_with<kQueries>((t.count + blocks - 1) / blocks, 0,
                      [&]<int Queries>(std::int64_t) { wide = kWide<Queries>; });
  const std::int64_t value_steps = kSlots / P::kElements;
  const std::int64_t score_steps = blocks * t.key_steps * (kSlotVecs / wide);
  Ahead values = ahead_of(t.values, t.columns * value_steps * kCellBytes, score_steps);
  each_block([&]<int Queries>(std::int64_t at) {
    weigh_block<P, Queries>(t, at, weights + at * kWeightsBytes<P>, values);
  });
  const std::int64_t add_steps = blocks * value_steps * ((t.columns / kLanes + wide - 1) / wide);
  Ahead keys = ahead_of(t.next_keys, t.key_steps * kSlots * kCellBytes, add_steps);
  const unsigned mode = P::enter();
  for (std::int64_t column = 0; column < t.columns; column += kAttentionPanelColumns) {
    each_block([&]<int Queries>(std::int64_t at) {
      add_block<P, Queries>(t, at, weights + at * kWeightsBytes<P>, column, keys);
    });
  }
  P::leave(mode);
}

}  // namespace firstlight::FL_ISA_NS
