// The executable specification of attention.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace firstlight::reference {

struct AttentionShape {
  std::size_t heads, kv_heads, key, value;
  double scale;
  std::size_t window = 0;  // 0: unlimited
  double softcap = 0;      // 0: none
};

/// One sequence from its start. q [T, heads key], k [T, kv_heads key], v [T, kv_heads value], sinks [heads]
/// or empty -> o [T, heads value].
inline std::vector<double> attention(const AttentionShape& shape, std::span<const float> q,
                                     std::span<const float> k, std::span<const float> v,
                                     std::span<const float> sinks = {}) {
  const auto [heads, kv_heads, key, value, scale, window, softcap] = shape;
  const std::size_t tokens = q.size() / (heads * key);
  std::vector<double> o(tokens * heads * value, 0.0);
  for (std::size_t t = 0; t < tokens; ++t) {
    const std::size_t first = window > 0 && t + 1 > window ? t + 1 - window : 0;
    for (std::size_t h = 0; h < heads; ++h) {
      const std::size_t g = h / (heads / kv_heads);
      std::vector<double> p(t + 1 - first);
      double largest = sinks.empty() ? -INFINITY : static_cast<double>(sinks[h]);
      for (std::size_t s = first; s <= t; ++s) {
        double score = 0;
        for (std::size_t i = 0; i < key; ++i) {
          score += static_cast<double>(q[(t * heads + h) * key + i]) * k[(s * kv_heads + g) * key + i];
        }
        score *= scale;
        if (softcap > 0) score = softcap * std::tanh(score / softcap);
        p[s - first] = score;
        largest = std::fmax(largest, score);
      }
      // A sink is one more logit that has no value.
      double sum = sinks.empty() ? 0 : std::exp(sinks[h] - largest);
      for (double& x : p) sum += x = std::exp(x - largest);
      for (std::size_t s = first; s <= t; ++s) {
        const float* row = &v[(s * kv_heads + g) * value];
        for (std::size_t j = 0; j < value; ++j) o[(t * heads + h) * value + j] += p[s - first] / sum * row[j];
      }
    }
  }
  return o;
}

}  // namespace firstlight::reference
