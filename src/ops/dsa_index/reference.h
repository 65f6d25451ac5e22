// The executable specification of dsa_index.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace firstlight::reference {

struct DsaIndexShape {
  std::size_t heads, dim, topk, kpool;
  bool select_tail;
  [[nodiscard]] std::size_t width() const { return topk + (kpool > 1 && select_tail ? kpool - 1 : 0); }
};

/// Keys that are scored: k itself, or one key a complete pool of kpool tokens, in each channel
/// K_P = sum_s softmax_s(gate_s + ape_s) k_s.
inline std::vector<double> dsa_pooled_keys(const DsaIndexShape& shape, std::span<const float> k,
                                           std::span<const float> gate, std::span<const float> ape) {
  const std::size_t dim = shape.dim;
  const std::size_t kpool = shape.kpool;
  if (kpool == 1) return {k.begin(), k.end()};
  const std::size_t pools = k.size() / dim / kpool;
  std::vector<double> keys(pools * dim);
  for (std::size_t p = 0; p < pools; ++p) {
    for (std::size_t c = 0; c < dim; ++c) {
      double largest = -INFINITY;
      const auto x = [&](std::size_t j) {
        return static_cast<double>(gate[(p * kpool + j) * dim + c]) + ape[j * dim + c];
      };
      for (std::size_t j = 0; j < kpool; ++j) largest = std::fmax(largest, x(j));
      double sum = 0;
      double mixed = 0;
      for (std::size_t j = 0; j < kpool; ++j) {
        const double e = std::exp(x(j) - largest);
        sum += e;
        mixed += e * k[(p * kpool + j) * dim + c];
      }
      keys[p * dim + c] = mixed / sum;
    }
  }
  return keys;
}

/// I(t, s) for the first `count` keys; q [heads, dim] and w [heads] of one token.
inline std::vector<double> dsa_scores(const DsaIndexShape& shape, std::span<const float> q,
                                      std::span<const float> w, std::span<const double> keys,
                                      std::size_t count) {
  const double scale = 1 / std::sqrt(static_cast<double>(shape.heads * shape.dim));
  std::vector<double> scores(count, 0.0);
  for (std::size_t s = 0; s < count; ++s) {
    for (std::size_t h = 0; h < shape.heads; ++h) {
      double dot = 0;
      for (std::size_t c = 0; c < shape.dim; ++c) dot += q[h * shape.dim + c] * keys[s * shape.dim + c];
      scores[s] += w[h] * scale * std::fmax(dot, 0.0);
    }
  }
  return scores;
}

/// Chosen positions of the query at position t: ascending, -1 padded to width(). `scores` are those of
/// the (t + 1) / kpool keys whose last token is visible.
inline std::vector<std::int32_t> dsa_choose(const DsaIndexShape& shape, std::span<const double> scores,
                                            std::size_t t) {
  std::vector<std::size_t> order(scores.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  // Score descending, then position ascending.
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  order.resize(std::min(order.size(), shape.topk / shape.kpool));
  std::vector<std::int32_t> chosen;
  for (const std::size_t pool : order) {
    for (std::size_t j = 0; j < shape.kpool; ++j) {
      chosen.push_back(static_cast<std::int32_t>(pool * shape.kpool + j));
    }
  }
  if (shape.select_tail) {
    for (std::size_t s = scores.size() * shape.kpool; s <= t; ++s) {
      chosen.push_back(static_cast<std::int32_t>(s));
    }
  }
  std::sort(chosen.begin(), chosen.end());
  chosen.resize(shape.width(), -1);
  return chosen;
}

/// One sequence from its start: q [T, heads dim], k [T, dim], w [T, heads], with kpool > 1 gate [T, dim] and
/// ape [kpool, dim] -> chosen [T, width].
inline std::vector<std::int32_t> dsa_index(const DsaIndexShape& shape, std::span<const float> q,
                                           std::span<const float> k, std::span<const float> w,
                                           std::span<const float> gate = {},
                                           std::span<const float> ape = {}) {
  const std::vector<double> keys = dsa_pooled_keys(shape, k, gate, ape);
  std::vector<std::int32_t> out;
  for (std::size_t t = 0; t < k.size() / shape.dim; ++t) {
    const auto scores = dsa_scores(shape, q.subspan(t * shape.heads * shape.dim, shape.heads * shape.dim),
                                   w.subspan(t * shape.heads, shape.heads), keys, (t + 1) / shape.kpool);
    const auto chosen = dsa_choose(shape, scores, t);
    out.insert(out.end(), chosen.begin(), chosen.end());
  }
  return out;
}

}  // namespace firstlight::reference
