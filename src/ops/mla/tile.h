// A tile: scores, softmax, weighted values. Include after a simd_<isa>.h.
//
// A score is one chain over the row's elements, a lane being a query; a value is one chain over the tile's
// rows that goes on from tile to tile, a lane being a column. Which queries and rows are computed together
// changes no bit, so blocks are as large as the registers.
#pragma once

#include "device/cpu/vec_math.h"
#include "ops/mla/kernels.h"
#include "ops/mla/operands.h"

namespace firstlight::FL_ISA_NS {

// Register blocks: rows of 16 queries' scores; queries x vectors of columns of values. A Vec is one of 32
// registers with AVX-512, two of 16 otherwise. With two vectors of queries a row's cell could not be a memory
// operand, which costs more than reading it twice.
#if defined(__AVX512F__)
constexpr int kRows = 8;
constexpr int kColumnVecs = 4;
#elif defined(__AVX2__)
constexpr int kRows = 5;
constexpr int kColumnVecs = 1;
#else
constexpr int kRows = 5;
constexpr int kColumnVecs = 2;
#endif
constexpr int kQueries = 6;
constexpr std::int64_t kTileSlots = kMlaTileSlots;
static_assert((kMlaTileRows + kRows - 1) / kRows * kRows <= kTileSlots);
constexpr float kLowest = -0x1.fffffep127F;

/// Half of the next tile's rows are fetched while values are added. Only where a step of that is long.
template <class P>
constexpr bool kFetchesWithValues = P::kInterleaved;

/// Scores of 16 queries with rows [row, row + kRows) into scores[row][lane].
template <class P>
__attribute__((noinline)) void score_rows(const MlaTile& t, std::int64_t vec, std::int64_t row,
                                          float (*scores)[kLanes]) {
  const std::int64_t steps = t.key_width * P::kElementBytes / kCellBytes;
  const std::byte* panel = t.queries + vec * steps * kCellsBytes;
  const std::byte* rows[kRows];
  Vec sum[kRows];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    rows[r] = t.keys[row + r];
    sum[r] = zero();
  }
  // Meanwhile as many rows of the next tile arrive, one after the other, or half as many.
  constexpr int kAhead = kFetchesWithValues<P> ? (kRows + 1) / 2 : kRows;
  const std::int64_t share = steps / kAhead + 1;
  const std::int64_t stride = t.next_bytes / share + 1;
  std::int64_t s = 0;
  for (int r = 0; r < kAhead; ++r) {
    const std::byte* ahead = t.next[row / kRows * kAhead + r];
    for (const std::int64_t end = smaller(steps, s + share); s < end; ++s, ahead += stride) {
      prefetch_later(ahead);
      const auto queries = P::load_cells(panel + s * kCellsBytes);
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        sum[i] = P::dot(sum[i], queries, P::broadcast_cell(rows[i] + s * kCellBytes));
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) store(scores[row + r], sum[r]);
}

/// Scores of 16 queries become weights exp(scale score - max) of `pairs` pairs of rows, 0 where a query does
/// not see a row; max and sum move on. Returns what a query's older values are multiplied by.
template <class P, bool Masked>
FL_INLINE Vec softmax(const MlaTile& t, std::int64_t vec, std::int64_t pairs, const float (*scores)[kLanes],
                      std::byte* weights, std::int64_t row_bytes) {
  const Vec scale = broadcast(t.scale);
  const Vec visible = load(t.visible + vec * kLanes);
  const auto score = [&](std::int64_t row) {
    const Vec s = load(scores[row]) * scale;
    if constexpr (!Masked) return s;
    return select(less(broadcast(static_cast<float>(row)), visible), s, broadcast(kLowest));
  };
  float* max_of = t.running.max + vec * kLanes;
  float* sum_of = t.running.sum + vec * kLanes;
  const Vec before = t.first ? broadcast(kLowest) : load(max_of);
  Vec even_max = before;
  Vec odd_max = before;
  for (std::int64_t i = 0; i < pairs; ++i) {
    even_max = max(even_max, score(2 * i));
    odd_max = max(odd_max, score(2 * i + 1));
  }
  const Vec largest = max(even_max, odd_max);
  // The sum adds what the values are multiplied by: weights sum to one however coarse they are.
  const auto weight = [&](std::int64_t row) {
    const Vec p = P::weight(score(row) - largest);
    if constexpr (!Masked) return p;
    return select(less(broadcast(static_cast<float>(row)), visible), p, zero());
  };
  const std::int64_t pair_bytes = row_bytes * (P::kInterleaved ? 1 : 2);
  Vec even_sum = zero();
  Vec odd_sum = zero();
  for (std::int64_t i = 0; i < pairs; ++i) {
    const Vec even = weight(2 * i);
    const Vec odd = weight(2 * i + 1);
    even_sum = even_sum + even;
    odd_sum = odd_sum + odd;
    P::put_weights(weights, row_bytes, even, odd);
    weights += pair_bytes;
  }
  const Vec factor = exp(before - largest);
  const Vec sum = even_sum + odd_sum;
  store(max_of, largest);
  store(sum_of, t.first ? sum : fma(load(sum_of), factor, sum));
  return factor;
}

/// Lines of the next tile's rows that are still to be asked for.
struct AheadLines {
  const std::byte* const* row;
  const std::byte* const* end;
  std::int64_t offset, bytes;  // in the row, and of one
};
FL_INLINE void fetch_line(AheadLines& ahead) {
  if (ahead.row == ahead.end) return;
  prefetch_later(*ahead.row + ahead.offset);
  ahead.offset += 64;
  if (ahead.offset < ahead.bytes) return;
  ahead.offset = 0;
  ++ahead.row;
}

/// Values of NQ queries from `query` on and kColumnVecs x 16 columns from `column` on: the chains go on over
/// `pairs` pairs of rows. `block` holds these columns interleaved (kInterleaved); the First queries fill it.
template <class P, int NQ, bool First>
__attribute__((noinline)) void add_values(const MlaTile& t, std::int64_t query, std::int64_t column,
                                          std::int64_t pairs, const std::byte* weights,
                                          std::int64_t row_bytes, std::byte* block, AheadLines& ahead) {
  Vec sum[NQ][kColumnVecs];
  float* const values = t.running.values + query * t.value_stride + column;
#pragma GCC unroll 16
  for (int q = 0; q < NQ; ++q) {
#pragma GCC unroll 16
    for (int v = 0; v < kColumnVecs; ++v) {
      sum[q][v] = t.first ? zero() : load(values + q * t.value_stride + v * kLanes);
    }
  }
  const std::byte* weight = weights + query * kCellBytes;
  const auto add = [&](const typename P::Cells(&columns)[kColumnVecs]) {
    if constexpr (kFetchesWithValues<P>) fetch_line(ahead);
#pragma GCC unroll 16
    for (int q = 0; q < NQ; ++q) {
      const auto p = P::broadcast_cell(weight + q * kCellBytes);
#pragma GCC unroll 16
      for (int v = 0; v < kColumnVecs; ++v) sum[q][v] = P::dot(sum[q][v], columns[v], p);
    }
    weight += row_bytes;
  };
  const std::int64_t left = t.value_width - column;
  typename P::Cells columns[kColumnVecs];
  if constexpr (!P::kInterleaved) {
    for (std::int64_t s = 0; s < 2 * pairs; ++s) {
      const float* row = floats(t.values[P::row_of_step(s)]) + column;
#pragma GCC unroll 16
      for (int v = 0; v < kColumnVecs; ++v) {
        if constexpr (kColumnVecs == 1) {
          columns[v] = load(row);
        } else {
          columns[v] = load_n(row + v * kLanes, left > v * kLanes ? kLanes : 0);
        }
      }
      add(columns);
    }
  } else if constexpr (First) {
    for (std::int64_t i = 0; i < pairs; ++i) {
      const std::uint16_t* even = halves(t.values[2 * i]) + column;
      const std::uint16_t* odd = halves(t.values[2 * i + 1]) + column;
#pragma GCC unroll 16
      for (int v = 0; v < kColumnVecs; v += 2) {
        const std::int64_t here = left - v * kLanes;
        const int n = here < 0 ? 0 : static_cast<int>(smaller(here, 2 * kLanes));
        interleave(load_pairs_n(even + v * kLanes, n), load_pairs_n(odd + v * kLanes, n), columns[v],
                   columns[v + 1]);
      }
#pragma GCC unroll 16
      for (int v = 0; v < kColumnVecs; ++v) store_pairs(halves(block) + v * 2 * kLanes, columns[v]);
      block += kColumnVecs * kCellsBytes;
      add(columns);
    }
  } else {
    for (std::int64_t i = 0; i < pairs; ++i) {
#pragma GCC unroll 16
      for (int v = 0; v < kColumnVecs; ++v) columns[v] = load_pairs(halves(block) + v * 2 * kLanes);
      block += kColumnVecs * kCellsBytes;
      add(columns);
    }
  }
#pragma GCC unroll 16
  for (int q = 0; q < NQ; ++q) {
#pragma GCC unroll 16
    for (int v = 0; v < kColumnVecs; ++v) store(values + q * t.value_stride + v * kLanes, sum[q][v]);
  }
}

using AddValues = void (*)(const MlaTile&, std::int64_t, std::int64_t, std::int64_t, const std::byte*,
                           std::int64_t, std::byte*, AheadLines&);
template <class P, bool First, int NQ = kQueries>
FL_INLINE AddValues add_values_for(std::int64_t queries) {
  if constexpr (NQ == 1) {
    return &add_values<P, 1, First>;
  } else {
    return queries == NQ ? &add_values<P, NQ, First> : add_values_for<P, First, NQ - 1>(queries);
  }
}

FL_INLINE std::int64_t largest_of(const float* counts, std::int64_t begin, std::int64_t end) {
  float largest = 0;
  for (std::int64_t i = begin; i < end; ++i) largest = counts[i] > largest ? counts[i] : largest;
  return static_cast<std::int64_t>(largest);
}

/// Values of queries [16 vec, 16 vec + 16) that a larger maximum was found for.
FL_INLINE void rescale(const MlaTile& t, std::int64_t vec, Vec factor) {
  if (all(equal(factor, broadcast(1.0F)))) return;
  alignas(64) float factors[kLanes];
  store(factors, factor);
  for (std::int64_t i = 0; i < kLanes && vec * kLanes + i < t.lanes; ++i) {
    if (factors[i] == 1.0F) continue;
    float* values = t.running.values + (vec * kLanes + i) * t.value_stride;
    for (std::int64_t c = 0; c < t.value_stride; c += kLanes) {
      store(values + c, load(values + c) * broadcast(factors[i]));
    }
  }
}

template <class P>
void attend_tile(const MlaTile& t) {
  static_assert(kMlaMaxQueries % kLanes == 0);
  constexpr std::int64_t kWeightRows = P::kInterleaved ? kMlaTileRows / 2 : kMlaTileRows;
  alignas(64) float scores[kTileSlots][kLanes];
  alignas(64) std::byte weights[kWeightRows * kMlaMaxQueries * kCellBytes];
  alignas(64) std::byte block[P::kInterleaved ? kWeightRows * kColumnVecs * kCellsBytes : 1];
  const std::int64_t vecs = (t.lanes + kLanes - 1) / kLanes;
  const std::int64_t row_bytes = vecs * kCellsBytes;
  const std::int64_t pair_bytes = row_bytes * (P::kInterleaved ? 1 : 2);
  const std::int64_t tile_pairs = (t.count + 1) / 2;

  for (std::int64_t v = 0; v < vecs; ++v) {
    const std::int64_t most = largest_of(t.visible, v * kLanes, (v + 1) * kLanes);
    const std::int64_t pairs = (most + 1) / 2;
    const unsigned mode = P::enter();
    for (std::int64_t row = 0; row < most; row += kRows) score_rows<P>(t, v, row, scores);
    P::leave(mode);
    const Vec all_rows = broadcast(static_cast<float>(2 * pairs));
    const bool masked = any(less(load(t.visible + v * kLanes), all_rows));
    std::byte* cells = weights + v * kCellsBytes;
    const Vec factor = masked ? softmax<P, true>(t, v, pairs, scores, cells, row_bytes)
                              : softmax<P, false>(t, v, pairs, scores, cells, row_bytes);
    for (std::int64_t i = pairs; i < tile_pairs; ++i) {
      P::put_weights(cells + i * pair_bytes, row_bytes, zero(), zero());
    }
    if (!t.first) rescale(t, v, factor);
  }

  const std::int64_t blocks = (t.lanes + kQueries - 1) / kQueries;
  AheadLines ahead{t.next + kMlaTileRows / 2, t.next + kMlaTileRows, 0, t.next_bytes};
  const unsigned mode = P::enter();
  for (std::int64_t column = 0; column < t.columns; column += kColumnVecs * kLanes) {
    for (std::int64_t b = 0; b < blocks; ++b) {
      // Even shares, the larger ones first: the first block interleaves for all.
      const std::int64_t begin = (t.lanes * b + blocks - 1) / blocks;
      const std::int64_t end = (t.lanes * (b + 1) + blocks - 1) / blocks;
      const std::int64_t pairs = b == 0 ? tile_pairs : (largest_of(t.visible, begin, end) + 1) / 2;
      const AddValues add =
          b == 0 ? add_values_for<P, true>(end - begin) : add_values_for<P, false>(end - begin);
      add(t, begin, column, pairs, weights, row_bytes, block, ahead);
    }
  }
  P::leave(mode);
}

}  // namespace firstlight::FL_ISA_NS
