// The executable specification of layer_norm.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace firstlight::reference {

/// x, w, b [width] -> y [width]; double inside.
inline std::vector<double> layer_norm(std::span<const float> x, std::span<const float> w,
                                      std::span<const float> b, double eps) {
  double mean = 0;
  for (const float v : x) mean += v;
  mean /= static_cast<double>(x.size());
  double variance = 0;
  for (const float v : x) variance += (v - mean) * (v - mean);
  variance /= static_cast<double>(x.size());
  std::vector<double> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = (x[i] - mean) / std::sqrt(variance + eps) * w[i] + b[i];
  return y;
}

}  // namespace firstlight::reference
