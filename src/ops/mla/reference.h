// The executable specification of mla, in the expanded form of the papers.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace firstlight::reference {

struct MlaShape {
  std::size_t heads, nope, rope, v, latent;
  double scale;
};

/// One sequence from its start. q [T, heads (nope + rope)], c [T, latent], k_pe [T, rope],
/// kv_b [heads (nope + v), latent] -> o [T, heads v]. chosen [T, width] lists the positions that a
/// query attends (-1: none); empty: all up to its own.
inline std::vector<double> mla(const MlaShape& shape, std::span<const float> q, std::span<const float> c,
                               std::span<const float> k_pe, std::span<const float> kv_b,
                               std::span<const std::int32_t> chosen = {}) {
  const auto [heads, nope, rope, v, latent, scale] = shape;
  const std::size_t tokens = c.size() / latent;
  const std::size_t width = chosen.size() / tokens;
  const std::size_t up = nope + v;
  // kv_b c_s: [T, heads, nope + v], per head k_nope then v
  std::vector<double> expanded(tokens * heads * up);
  for (std::size_t s = 0; s < tokens; ++s) {
    for (std::size_t i = 0; i < heads * up; ++i) {
      double sum = 0;
      for (std::size_t j = 0; j < latent; ++j) {
        sum += static_cast<double>(kv_b[i * latent + j]) * c[s * latent + j];
      }
      expanded[s * heads * up + i] = sum;
    }
  }

  std::vector<double> o(tokens * heads * v, 0.0);
  for (std::size_t t = 0; t < tokens; ++t) {
    std::vector<std::size_t> visible;
    for (std::size_t s = 0; s <= t && chosen.empty(); ++s) visible.push_back(s);
    for (std::size_t i = 0; i < width; ++i) {
      if (chosen[t * width + i] >= 0) visible.push_back(static_cast<std::size_t>(chosen[t * width + i]));
    }
    for (std::size_t h = 0; h < heads; ++h) {
      const float* query = &q[(t * heads + h) * (nope + rope)];
      std::vector<double> p(visible.size());
      double largest = -INFINITY;
      for (std::size_t i = 0; i < visible.size(); ++i) {
        const double* k_nope = &expanded[(visible[i] * heads + h) * up];
        for (std::size_t j = 0; j < nope; ++j) p[i] += query[j] * k_nope[j];
        for (std::size_t j = 0; j < rope; ++j) {
          p[i] += static_cast<double>(query[nope + j]) * k_pe[visible[i] * rope + j];
        }
        p[i] *= scale;
        largest = std::fmax(largest, p[i]);
      }
      double sum = 0;
      for (double& x : p) sum += x = std::exp(x - largest);
      for (std::size_t i = 0; i < visible.size(); ++i) {
        const double* value = &expanded[(visible[i] * heads + h) * up + nope];
        for (std::size_t j = 0; j < v; ++j) o[(t * heads + h) * v + j] += p[i] / sum * value[j];
      }
    }
  }
  return o;
}

}  // namespace firstlight::reference
