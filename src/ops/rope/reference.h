// The executable specification of rope.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace firstlight::reference {

/// One head x [dim]; angles [cos: n | sin: n]; channels offset .. offset + 2n are rotated.
/// RoFormer, arXiv 2104.09864, section 3.4.
inline std::vector<double> rope(std::span<const float> x, std::span<const float> angles, bool interleaved,
                                std::size_t offset) {
  const std::size_t n = angles.size() / 2;
  std::vector<double> y(x.begin(), x.end());
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t a = offset + (interleaved ? 2 * i : i);
    const std::size_t b = offset + (interleaved ? 2 * i + 1 : i + n);
    const double c = angles[i];
    const double s = angles[n + i];
    y[a] = x[a] * c - x[b] * s;
    y[b] = x[b] * c + x[a] * s;
  }
  return y;
}

}  // namespace firstlight::reference
