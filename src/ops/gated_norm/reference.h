// The executable specification of gated_norm.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace firstlight::reference {

/// x, gate, w [width] of one head -> y [width]; double inside.
inline std::vector<double> gated_norm(std::span<const float> x, std::span<const float> gate,
                                      std::span<const float> w, double eps, bool silu) {
  double squares = 0;
  for (const float v : x) squares += static_cast<double>(v) * v;
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
  std::vector<double> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    y[i] = x[i] * scale * w[i] / (1.0 + std::exp(-static_cast<double>(gate[i]))) * (silu ? gate[i] : 1.0);
  }
  return y;
}

}  // namespace firstlight::reference
