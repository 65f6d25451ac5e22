// The executable specification of linear.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace firstlight::reference {

/// One row: x [K], W [N, K] -> y [N], y_n = sum_k x_k W_nk; double inside.
inline std::vector<double> linear(std::span<const float> x, std::span<const float> w) {
  std::vector<double> y(w.size() / x.size(), 0.0);
  for (std::size_t n = 0; n < y.size(); ++n) {
    for (std::size_t k = 0; k < x.size(); ++k) y[n] += static_cast<double>(x[k]) * w[n * x.size() + k];
  }
  return y;
}

/// sum_k |x_k W_nk|: what the rounding of a sum is measured by, however much of it cancels.
inline std::vector<double> linear_size(std::span<const float> x, std::span<const float> w) {
  std::vector<double> size(w.size() / x.size(), 0.0);
  for (std::size_t n = 0; n < size.size(); ++n) {
    for (std::size_t k = 0; k < x.size(); ++k) {
      size[n] += std::abs(static_cast<double>(x[k]) * w[n * x.size() + k]);
    }
  }
  return size;
}

}  // namespace firstlight::reference
