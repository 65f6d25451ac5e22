// The inner loops of dsa_index, compiled once per instruction set.
#pragma once

#include <cstdint>

#include "ops/dispatch.h"

namespace firstlight {

/// What a byte score of a query may be wrong by, for a key with residual norm rho and norm n (tile.h):
/// |I - byte score| <= residual * rho + norm * n + constant. Rounded up.
struct ScoreError {
  float residual = 0, norm = 0, constant = 0;
};

/// A query of [heads, dim] as the loops below read it. H4, H16: heads rounded up to 4, 16; G: dim / 4, up.
struct IndexQuery {
  float* cells;         // [dim rounded up to 2, H16]: exact scores keep heads in lanes; see operands.h
  float* weights;       // [H16] head weights with the constant factor
  std::int8_t* bytes;   // [H4 / 4, G, 4, 4]: four heads' four channels lie together
  std::int32_t* start;  // [H4] -128 * the sum of a head's bytes: what keys stored as k + 128 add too much
  float* byte_weights;  // [H4] weight * scale of a head's bytes
  // One more head, without relu: half of what the heads' bytes leave of q.
  std::int8_t* linear;  // [G, 4]
  std::int32_t linear_start;
  float linear_weight;
  ScoreError error;
  bool certified;  // false: not finite, or so large or small that `error` would not hold
};

/// Memory that prepare_query works in.
struct QueryScratch {
  float* scaled;     // [heads, dim] channels in units of the head's scale
  float* residuals;  // [heads, dim] what the bytes leave of them
  float* columns;    // [dim, H16]
  float* products;   // [2, H16, H16]
  float* half;       // [dim]
};
/// Above this many heads bounds are sums over heads; below, heads that differ in direction share an error.
constexpr std::int64_t kMostGramHeads = 256;

/// How a key was turned into bytes.
struct KeyScale {
  float scale;     // of its bytes
  float residual;  // at least |key - scale * bytes|; infinite when the key has no useful bytes
  float norm;      // at least |key| + residual
};

/// The byte keys of a page, or of as many lanes.
struct ByteTile {
  const std::uint8_t* bytes;  // [G, lanes, 4], k + 128
  const float* scale;         // [lanes] each
  const float* residual;
  const float* norm;
};

/// Exact scores are stored in whole vectors.
constexpr std::int64_t kScoreSlack = 16;
/// Keys that are fetched while others are scored lie so far behind them.
constexpr std::int64_t kScoresAhead = 32;

/// Memory that is fetched while something else is computed.
struct Ahead {
  const std::uint8_t* at = nullptr;
  const std::uint8_t* end = nullptr;
};

/// Exact scores. Cached keys [dim rounded up to 2, with zeros] are
///   f32 mode   f32; a dot product is one chain over channels ascending
///   bf16 mode  bf16, as is the query; a dot product is one chain of dot_pairs, where denormals are zero
/// Scores are compared as integers in the order of candidate_key: see float_order.
struct IndexOperands {
  /// q [heads, dim], w [heads] -> the query in all forms; without scratch in those of `score` alone.
  void (*prepare_query)(const float* q, const float* w, float factor, std::int64_t heads, std::int64_t dim,
                        const QueryScratch& scratch, IndexQuery& query);
  /// Order of I(t, .) of `count` cached keys. A score adds heads i, i + 16, ... to lane i and folds the lanes
  /// as reduce_add does. Never that of -0. Up to kScoreSlack elements behind the last of
  /// `order` may be overwritten. keys[known], known >= count: those behind `count` are fetched only, from
  /// kScoresAhead on (known = count + kScoresAhead keeps a stream of calls going).
  void (*score)(const IndexQuery& query, std::int64_t heads, std::int64_t dim,
                const std::uint8_t* const* keys, std::int64_t count, std::int64_t known, std::int32_t* order);
  /// A cached key's numbers as they take part in products.
  void (*values)(const std::uint8_t* key, std::int64_t dim, float* out);
};

struct DsaIndexKernels {
  IndexOperands f32, bf16;
  /// lower <= order of I(t, .) <= upper for each lane of a tile; a multiple of 16 lanes, at most 64.
  void (*scan)(const IndexQuery& query, std::int64_t heads, std::int64_t dim, const ByteTile& tile,
               std::int64_t lanes, Ahead ahead, std::int32_t* lower, std::int32_t* upper);
  /// key [dim] -> its bytes + 128 at bytes[g * stride + 0..3].
  KeyScale (*quantise_key)(const float* key, std::int64_t dim, std::uint8_t* bytes, std::int64_t stride);
  /// Mean of keys [count, dim].
  void (*mean)(const float* keys, std::int64_t count, std::int64_t dim, float* out);
  /// One pooled key: rows[j] and gates[j] [dim] of the pool's token j, ape [kpool, dim] -> out [dim].
  void (*pool)(const float* const* rows, const float* const* gates, const float* ape, std::int64_t kpool,
               std::int64_t dim, float* out);
  /// How many of x[n] are at least `limit`.
  std::int64_t (*count_from)(const std::int32_t* x, std::int64_t n, std::int32_t limit);
  /// Copies the entries i with by[i] >= limit of the arrays a, b, c to oa, ob, oc in order; returns how many.
  /// In place is fine. Up to 15 elements behind the last may be overwritten.
  std::int64_t (*keep)(const std::int32_t* by, std::int64_t n, std::int32_t limit, const std::int32_t* a,
                       const std::int32_t* b, const std::int32_t* c, std::int32_t* oa, std::int32_t* ob,
                       std::int32_t* oc);
  /// Splits n keys with lower <= score <= upper by the limits of a choice: score[i] becomes the least number
  /// where upper < out, the largest where lower > in, the bounds where they are equal. The other i, whose
  /// score is open, are listed in `open`, and counted. Up to 15 elements behind its last may be overwritten.
  std::int64_t (*open_keys)(const std::int32_t* lower, const std::int32_t* upper, std::int64_t n,
                            std::int32_t out, std::int32_t in, std::int32_t* score, std::int32_t* open);
  /// Certified search pays from this many keys for each that may be chosen.
  std::int64_t certified_from;
};

FL_DECLARE_TABLES(DsaIndexKernels, kDsaIndexKernels)

}  // namespace firstlight
