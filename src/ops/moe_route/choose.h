// The choice of experts for one row, given scores. Plain code: it is the executable specification too.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/top_k.h"

namespace firstlight {

struct RouteSettings {
  std::int64_t experts = 0;
  std::int64_t topk = 0;
  std::int64_t groups = 1;
  std::int64_t topk_groups = 1;
  bool renormalize = false;
  float scale = 1.0F;
};

/// Expert ids, ascending, of the topk best scores[e] + bias[e] within the kept groups (spec kimi 3.5). Ties:
/// the lower id. bias [experts] or null; keys [experts] scratch; chosen [topk].
inline void choose_experts(const RouteSettings& s, const float* scores, const float* bias,
                           std::uint64_t* keys, std::int32_t* chosen) {
  const auto selection = [&](std::int64_t e) { return bias == nullptr ? scores[e] : scores[e] + bias[e]; };
  const std::int64_t size = s.experts / s.groups;
  std::int64_t count = 0;
  if (s.groups == 1) {
    for (std::int64_t e = 0; e < s.experts; ++e) {
      keys[count++] = candidate_key(selection(e), static_cast<std::uint32_t>(e));
    }
  } else {
    // A group's score is the sum of its two best.
    for (std::int64_t g = 0; g < s.groups; ++g) {
      std::uint64_t best[2] = {~std::uint64_t{0}, ~std::uint64_t{0}};
      for (std::int64_t e = g * size; e < (g + 1) * size; ++e) {
        const std::uint64_t key = candidate_key(selection(e), static_cast<std::uint32_t>(e));
        if (key < best[0]) {
          best[1] = best[0];
          best[0] = key;
        } else if (key < best[1]) {
          best[1] = key;
        }
      }
      const float sum = selection(candidate_position(best[0])) + selection(candidate_position(best[1]));
      keys[g] = candidate_key(sum, static_cast<std::uint32_t>(g));
    }
    std::partial_sort(keys, keys + s.topk_groups, keys + s.groups);
    // In place, the last group first: what is written lies behind the groups still to be read.
    for (std::int64_t g = s.topk_groups; g-- > 0;) {
      const std::int64_t begin = size * candidate_position(keys[g]);
      for (std::int64_t e = 0; e < size; ++e) {
        keys[g * size + e] = candidate_key(selection(begin + e), static_cast<std::uint32_t>(begin + e));
      }
    }
    count = s.topk_groups * size;
  }
  std::nth_element(keys, keys + s.topk - 1, keys + count);
  for (std::int64_t i = 0; i < s.topk; ++i)
    chosen[i] = static_cast<std::int32_t>(candidate_position(keys[i]));
  std::sort(chosen, chosen + s.topk);
}

/// Weights of the chosen experts: their scores without the bias, over their sum when asked, times the scale.
inline void expert_weights(const RouteSettings& s, const float* scores, const std::int32_t* chosen,
                           float* weights) {
  float sum = 1e-20F;
  for (std::int64_t i = 0; i < s.topk; ++i) {
    weights[i] = scores[chosen[i]];
    sum += weights[i];
  }
  for (std::int64_t i = 0; i < s.topk; ++i)
    weights[i] = (s.renormalize ? weights[i] / sum : weights[i]) * s.scale;
}

}  // namespace firstlight
