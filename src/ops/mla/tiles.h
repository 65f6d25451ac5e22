// Some tiles of a partition: scores, softmax, weighted values. Include after a simd_<isa>.h.
//
// A score is one chain over the row's elements, a lane being a query; a value is one chain over the rows that
// goes on from tile to tile, a lane being a column. Which queries and rows are computed together changes no
// bit, so blocks are as large as the registers, and values stay in them from the first tile to the last.
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
constexpr int kColumnVecs = 2;
constexpr int kQueries = 12;
#elif defined(__AVX2__)
constexpr int kRows = 5;
constexpr int kColumnVecs = 1;
constexpr int kQueries = 6;
#else
constexpr int kRows = 5;
constexpr int kColumnVecs = 2;
constexpr int kQueries = 6;
#endif
constexpr std::int64_t kTileSlots = kMlaTileRows + kMlaSpareSlots;
static_assert((kMlaTileRows + kRows - 1) / kRows * kRows <= kTileSlots);
/// Steps of a panel of queries that stay in the first cache level while a tile's rows pass: 20 KB.
constexpr std::int64_t kNearSteps = 320;
constexpr float kLowest = -0x1.fffffep127F;

/// Half of what is read next is fetched while values are added. Only where a step of that is long.
template <class P>
constexpr bool kFetchesWithValues = P::kInterleaved;

/// Rows to be fetched: the first `count` of a table, `bytes` of each.
struct AheadRows {
  const std::byte* const* rows;
  std::int64_t count, bytes;
};

/// Steps [begin, end) of the chains of 16 queries' scores with rows [row, row + kRows) into
/// scores[0 .. kRows)[lane]; meanwhile the rows of `ahead` arrive, one after the other.
template <class P>
__attribute__((noinline)) void score_rows(const MlaTiles& t, const std::byte* panel, std::int64_t begin,
                                          std::int64_t end, std::int64_t row, const AheadRows& ahead,
                                          float (*scores)[kLanes]) {
  const std::byte* rows[kRows];
  Vec sum[kRows];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    rows[r] = t.keys[row + r];
    sum[r] = begin == 0 ? zero() : load(scores[r]);
  }
  const std::int64_t share = (end - begin) / ahead.count + 1;
  const std::int64_t stride = ahead.bytes / share + 1;
  std::int64_t s = begin;
  for (std::int64_t r = 0; r < ahead.count; ++r) {
    const std::byte* line = ahead.rows[r];
    for (const std::int64_t last = smaller(end, s + share); s < last; ++s, line += stride) {
      prefetch_later(line);
      const auto queries = P::load_cells(panel + s * kCellsBytes);
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        sum[i] = P::dot(sum[i], queries, P::broadcast_cell(rows[i] + s * kCellBytes));
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) store(scores[r], sum[r]);
}

/// Scores of 16 queries with the `2 * pairs` rows of a tile from `first` on become weights
/// exp(scale score - max), 0 where a query does not see a row; max and sum move on, from nothing with
/// `fresh`. Returns what a query's older values are multiplied by.
template <class P, bool Masked>
FL_INLINE Vec softmax(const MlaTiles& t, std::int64_t vec, std::int64_t first, bool fresh, std::int64_t pairs,
                      const float (*scores)[kLanes], std::byte* weights, std::int64_t row_bytes) {
  const Vec scale = broadcast(t.scale);
  const Vec visible = load(t.visible + vec * kLanes);
  const auto sees = [&](std::int64_t row) {
    return less(broadcast(static_cast<float>(first + row)), visible);
  };
  const auto score = [&](std::int64_t row) {
    const Vec s = load(scores[row]) * scale;
    if constexpr (!Masked) return s;
    return select(sees(row), s, broadcast(kLowest));
  };
  float* max_of = t.running.max + vec * kLanes;
  float* sum_of = t.running.sum + vec * kLanes;
  const Vec before = fresh ? broadcast(kLowest) : load(max_of);
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
    return select(sees(row), p, zero());
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
  store(sum_of, fresh ? sum : fma(load(sum_of), factor, sum));
  return factor;
}

/// Lines of rows that are still to be asked for.
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

/// What the scores leave for the values.
template <class P>
struct TileWeights {
  static constexpr std::int64_t kRowsOfCells = P::kInterleaved ? kMlaPartitionRows / 2 : kMlaPartitionRows;
  alignas(64) std::byte cells[kRowsOfCells * kMlaMaxQueries * kCellBytes];  // [row or pair][query]
  alignas(64) float factors[kMlaPartitionTiles][kMlaMaxQueries];            // of values from before a tile
  std::uint64_t rescaled[kMlaPartitionTiles];                               // queries whose factor is not 1
  std::int64_t row_bytes;
};

/// Values of NQ queries from `query` on and kColumnVecs x 16 columns from `column` on: the chains go on over
/// the rows of all tiles, of which these queries see the first `2 * pairs`. `block` holds these columns
/// interleaved (kInterleaved); the First queries fill it.
template <class P, int NQ, bool First>
__attribute__((noinline)) void add_values(const MlaTiles& t, std::int64_t query, std::int64_t column,
                                          std::int64_t pairs, const TileWeights<P>& weights, std::byte* block,
                                          AheadLines& ahead) {
  Vec sum[NQ][kColumnVecs];
  float* const values = t.running.values + query * t.value_stride + column;
#pragma GCC unroll 16
  for (int q = 0; q < NQ; ++q) {
#pragma GCC unroll 16
    for (int v = 0; v < kColumnVecs; ++v) {
      sum[q][v] = t.first ? zero() : load(values + q * t.value_stride + v * kLanes);
    }
  }
  const std::byte* weight = weights.cells + query * kCellBytes;
  const std::int64_t row_bytes = weights.row_bytes;
  const std::byte* const* rows = t.values;
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
  std::int64_t pair = 0;
  for (std::int64_t tile = 0; pair < pairs; ++tile) {
    const std::uint64_t rescaled = weights.rescaled[tile] >> query;
    if ((rescaled & ((std::uint64_t{1} << NQ) - 1)) != 0) {
      const float* factors = weights.factors[tile] + query;
#pragma GCC unroll 16
      for (int q = 0; q < NQ; ++q) {
        const Vec factor = broadcast(factors[q]);
#pragma GCC unroll 16
        for (int v = 0; v < kColumnVecs; ++v) sum[q][v] = sum[q][v] * factor;
      }
    }
    const std::int64_t end = smaller(pairs, pair + kMlaTileRows / 2);
    for (; pair < end; ++pair) {
      if constexpr (!P::kInterleaved) {
#pragma GCC unroll 2
        for (int s = 0; s < 2; ++s) {
          const float* row = floats(rows[P::row_of_step(2 * pair + s)]) + column;
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
        continue;
      } else if constexpr (First) {
        const std::uint16_t* even = halves(rows[2 * pair]) + column;
        const std::uint16_t* odd = halves(rows[2 * pair + 1]) + column;
#pragma GCC unroll 16
        for (int v = 0; v < kColumnVecs; v += 2) {
          const std::int64_t here = left - v * kLanes;
          const int n = here < 0 ? 0 : static_cast<int>(smaller(here, 2 * kLanes));
          interleave(load_pairs_n(even + v * kLanes, n), load_pairs_n(odd + v * kLanes, n), columns[v],
                     columns[v + 1]);
        }
#pragma GCC unroll 16
        for (int v = 0; v < kColumnVecs; ++v) store_pairs(halves(block) + v * 2 * kLanes, columns[v]);
      } else {
#pragma GCC unroll 16
        for (int v = 0; v < kColumnVecs; ++v) columns[v] = load_pairs(halves(block) + v * 2 * kLanes);
      }
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

template <class P>
using AddValues = void (*)(const MlaTiles&, std::int64_t, std::int64_t, std::int64_t, const TileWeights<P>&,
                           std::byte*, AheadLines&);
template <class P, bool First, int NQ = kQueries>
FL_INLINE AddValues<P> add_values_for(std::int64_t queries) {
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

/// Weights of a tile's rows and all queries.
template <class P>
void score_tile(const MlaTiles& t, std::int64_t tile, TileWeights<P>& weights) {
  alignas(64) float scores[kTileSlots][kLanes];
  const std::int64_t first = tile * kMlaTileRows;
  const std::int64_t count = smaller(kMlaTileRows, t.count - first);
  const bool last = first + count == t.count;
  const std::byte* const* next = last ? t.next : t.keys + first + kMlaTileRows;
  const std::int64_t next_bytes = last ? t.next_bytes : t.key_width * P::kElementBytes;
  const std::int64_t ahead = last && kFetchesWithValues<P> ? (kRows + 1) / 2 : kRows;
  const std::int64_t pair_bytes = weights.row_bytes * (P::kInterleaved ? 1 : 2);
  const std::int64_t tile_pairs = (count + 1) / 2;
  const std::int64_t steps = t.key_width * P::kElementBytes / kCellBytes;
  const std::int64_t blocks = (steps + kNearSteps - 1) / kNearSteps;
  const bool fresh = t.first && tile == 0;
  std::uint64_t rescaled = 0;
  for (std::int64_t v = 0; v * kLanes < t.lanes; ++v) {
    const std::int64_t seen = largest_of(t.visible, v * kLanes, (v + 1) * kLanes) - first;
    const std::int64_t most = smaller(count, seen < 0 ? 0 : seen);
    const std::int64_t pairs = (most + 1) / 2;
    const unsigned mode = P::enter();
    for (std::int64_t b = 0; b < blocks; ++b) {
      for (std::int64_t row = 0; row < most; row += kRows) {
        score_rows<P>(t, t.queries + v * steps * kCellsBytes, steps * b / blocks, steps * (b + 1) / blocks,
                      first + row, {next + row / kRows * ahead, ahead, next_bytes}, scores + row);
      }
    }
    P::leave(mode);
    const Vec all_rows = broadcast(static_cast<float>(first + 2 * pairs));
    const bool masked = any(less(load(t.visible + v * kLanes), all_rows));
    std::byte* cells = weights.cells + first / 2 * pair_bytes + v * kCellsBytes;
    const Vec factor = masked
                           ? softmax<P, true>(t, v, first, fresh, pairs, scores, cells, weights.row_bytes)
                           : softmax<P, false>(t, v, first, fresh, pairs, scores, cells, weights.row_bytes);
    for (std::int64_t i = pairs; i < tile_pairs; ++i) {
      P::put_weights(cells + i * pair_bytes, weights.row_bytes, zero(), zero());
    }
    float* factors = weights.factors[tile] + v * kLanes;
    store(factors, factor);
    for (std::int64_t i = 0; i < kLanes; ++i) {
      rescaled |= std::uint64_t{!fresh && factors[i] != 1.0F} << (v * kLanes + i);
    }
  }
  weights.rescaled[tile] = rescaled;
}

template <class P>
void attend_tiles(const MlaTiles& t) {
  static_assert(kMlaMaxQueries % kLanes == 0 && kMlaMaxQueries <= 64);
  TileWeights<P> weights;
  alignas(64) std::byte block[P::kInterleaved ? kMlaPartitionRows / 2 * kColumnVecs * kCellsBytes : 1];
  weights.row_bytes = (t.lanes + kLanes - 1) / kLanes * kCellsBytes;
  for (std::int64_t i = 0; i * kMlaTileRows < t.count; ++i) score_tile(t, i, weights);

  const std::int64_t blocks = (t.lanes + kQueries - 1) / kQueries;
  AheadLines ahead{t.next + kMlaTileRows / 2, t.next + kMlaTileRows, 0, t.next_bytes};
  const unsigned mode = P::enter();
  for (std::int64_t column = 0; column < t.columns; column += kColumnVecs * kLanes) {
    for (std::int64_t b = 0; b < blocks; ++b) {
      // Even shares, the larger ones first: the first block interleaves for all.
      const std::int64_t begin = (t.lanes * b + blocks - 1) / blocks;
      const std::int64_t end = (t.lanes * (b + 1) + blocks - 1) / blocks;
      const std::int64_t seen = b == 0 ? t.count : smaller(t.count, largest_of(t.visible, begin, end));
      const AddValues<P> add =
          b == 0 ? add_values_for<P, true>(end - begin) : add_values_for<P, false>(end - begin);
      add(t, begin, column, (seen + 1) / 2, weights, block, ahead);
    }
  }
  P::leave(mode);
}

}  // namespace firstlight::FL_ISA_NS
