// The executable specification of rope_angles.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace firstlight::reference {

/// [cos | sin] of one token; RoFormer, arXiv 2104.09864, section 3.4. The angle is an f32 product.
inline std::vector<double> rope_angles(std::int64_t position, std::span<const double> frequencies,
                                       double scale) {
  std::vector<double> y(2 * frequencies.size());
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const float angle = static_cast<float>(position) * static_cast<float>(frequencies[i]);
    y[i] = scale * std::cos(static_cast<double>(angle));
    y[frequencies.size() + i] = scale * std::sin(static_cast<double>(angle));
  }
  return y;
}

}  // namespace firstlight::reference
