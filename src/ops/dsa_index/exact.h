// Exact scores: blocks of keys against 16 heads, a lane being a head. Include after operands.h.
#pragma once

#include "ops/dsa_index/kernels.h"
#include "ops/dsa_index/operands.h"

namespace firstlight::FL_ISA_NS {

#define FL_UNROLL _Pragma("GCC unroll 16")

// Keys that are multiplied at once: enough chains to hide the latency of an operation, few enough that their
// addresses stay in registers.
#ifdef __AVX512F__
constexpr int kKeys = 8;
#else
constexpr int kKeys = 5;
#endif
// Keys whose lanes are folded together: whole blocks.
constexpr int kFolded = kLanes / kKeys * kKeys;

/// Order of a float as candidate_key has it: a < b as integers exactly if a < b, and NaN has a place.
FL_INLINE IVec float_order(Vec a) {
  const IVec x = as_int(a);
  return x ^ (shift_right_signed<31>(x) & broadcast_int(INT32_MAX));
}

/// dot[key] of kKeys keys with 16 heads, whose cells lie `stride` apart. With Fetch the keys of `ahead`, as
/// many, are on their way from memory meanwhile, one after the other.
template <class P, bool Fetch = false>
FL_INLINE void dot_block(const float* cells, std::int64_t stride, const std::uint8_t* const* keys,
                         std::int64_t steps, Vec (&dot)[kKeys],
                         [[maybe_unused]] const std::uint8_t* const* ahead = nullptr) {
  const std::uint8_t* key[kKeys];
  FL_UNROLL
  for (int i = 0; i < kKeys; ++i) {
    key[i] = keys[i];
    dot[i] = zero();
  }
  // Of the steps, a share for each of the keys ahead.
  [[maybe_unused]] const std::int64_t share = (steps + kKeys - 1) / kKeys;
  [[maybe_unused]] const std::int64_t stride_ahead = (steps * kCellBytes + share - 1) / share;
  [[maybe_unused]] const std::uint8_t* at = Fetch ? *ahead : nullptr;
  [[maybe_unused]] std::int64_t left = share;
  for (std::int64_t s = 0; s < steps; ++s) {
    if constexpr (Fetch) {
      __builtin_prefetch(at, 0, 2);
      at += stride_ahead;
      if (--left == 0 && s + 1 < steps) {
        at = *++ahead;
        left = share;
      }
    }
    const auto q = P::load_cells(cells + s * P::kVectors * stride, stride);
    FL_UNROLL
    for (int i = 0; i < kKeys; ++i) {
      dot[i] = P::dot(dot[i], q, P::broadcast_cell(key[i] + s * kCellBytes));
    }
  }
}

/// Not inlined: between enter and leave there must be no other arithmetic.
template <class P, bool Fetch>
__attribute__((noinline)) void dot_keys(const float* cells, std::int64_t stride,
                                        const std::uint8_t* const* keys, std::int64_t steps, int blocks,
                                        Vec* out, const std::uint8_t* const* ahead) {
  for (int b = 0; b < blocks; ++b) {
    Vec dot[kKeys];
    dot_block<P, Fetch>(cells, stride, keys + b * kKeys, steps, dot, ahead + b * kKeys);
    FL_UNROLL
    for (int i = 0; i < kKeys; ++i) out[b * kKeys + i] = dot[i];
  }
}

/// Scores of up to 16 keys; keys[] is filled up to a whole block, order[] has room for 16.
template <class P, bool Fetch>
FL_INLINE void score_vector(const IndexQuery& query, std::int64_t stride, const std::uint8_t* const* keys,
                            std::int64_t steps, int blocks, const std::uint8_t* const* ahead,
                            std::int32_t* order) {
  Vec sum[kLanes];
  FL_UNROLL
  for (int i = 0; i < kLanes; ++i) sum[i] = zero();
  for (std::int64_t h = 0; h < stride; h += kLanes) {
    Vec dot[kFolded];
    const unsigned mode = P::enter();
    if (Fetch && h == 0) {
      dot_keys<P, true>(query.cells, stride, keys, steps, blocks, dot, ahead);
    } else {
      dot_keys<P, false>(query.cells + h, stride, keys, steps, blocks, dot, keys);
    }
    P::leave(mode);
    const Vec weight = load(query.weights + h);
    for (int i = 0; i < blocks * kKeys; ++i) sum[i] = fma(weight, max(dot[i], zero()), sum[i]);
  }
  // Lanes are folded as reduce_add does, sixteen keys at once.
  transpose(sum);
  FL_UNROLL
  for (int half = kLanes / 2; half > 0; half /= 2) {
    FL_UNROLL
    for (int i = 0; i < half; ++i) sum[i] = sum[i] + sum[i + half];
  }
  // + 0 turns -0 into 0: both are the same score.
  store_int(order, float_order(sum[0] + zero()));
}

template <class P>
void score(const IndexQuery& query, std::int64_t heads, std::int64_t dim, const std::uint8_t* const* keys,
           std::int64_t count, std::int64_t known, std::int32_t* order) {
  const std::int64_t stride = up_to(heads, kLanes);
  const std::int64_t steps = up_to(dim, 2) / P::kChannels / P::kVectors;
  for (std::int64_t i = 0; i < count; i += kFolded) {
    const std::uint8_t* block[kFolded];
    const auto n = static_cast<int>(count - i < kFolded ? count - i : kFolded);
    for (int j = 0; j < kFolded; ++j) block[j] = keys[i + (j < n ? j : n - 1)];
    const int blocks = (n + kKeys - 1) / kKeys;
    const std::int64_t next = i + kScoresAhead;
    if (next < known) {
      const std::uint8_t* ahead[kFolded];
      for (int j = 0; j < kFolded; ++j) ahead[j] = keys[next + j < known ? next + j : known - 1];
      score_vector<P, true>(query, stride, block, steps, blocks, ahead, order + i);
    } else {
      score_vector<P, false>(query, stride, block, steps, blocks, block, order + i);
    }
  }
}

/// q [heads, dim] -> cells [steps, P::kVectors, heads rounded up to 16].
template <class P>
FL_INLINE void pack_query(const float* q, std::int64_t heads, std::int64_t dim, float* cells) {
  const std::int64_t stride = up_to(heads, kLanes);
  const std::int64_t vectors = up_to(dim, 2) / P::kChannels;
  for (std::int64_t h = 0; h < stride; h += kLanes) {
    for (std::int64_t s = 0; s < vectors; s += kLanes) {
      const std::int64_t skipped = s * P::kChannels;
      Vec rows[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        const bool there = h + i < heads && skipped < dim;
        rows[i] = there ? P::cells_of(q + (h + i) * dim + skipped, dim - skipped) : zero();
      }
      transpose(rows);
      for (int i = 0; i < kLanes && s + i < vectors; ++i) store(cells + (s + i) * stride + h, rows[i]);
    }
  }
}

template <class P>
void key_values(const std::uint8_t* key, std::int64_t dim, float* out) {
  for (std::int64_t i = 0; i < dim; i += kLanes) {
    const int n = dim - i < kLanes ? static_cast<int>(dim - i) : kLanes;
    store_n(out + i, P::load_values(key, i, n), n);
  }
}

}  // namespace firstlight::FL_ISA_NS
