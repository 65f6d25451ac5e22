// The executable specification of sampled_rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace firstlight::reference {

/// x [any, width], rows [R] -> y [R, width]: y_r = x_rows(r).
inline std::vector<float> pick_rows(std::span<const float> x, std::span<const std::int32_t> rows,
                                    std::size_t width) {
  std::vector<float> y;
  for (const std::int32_t row : rows) {
    for (std::size_t c = 0; c < width; ++c) y.push_back(x[static_cast<std::size_t>(row) * width + c]);
  }
  return y;
}

}  // namespace firstlight::reference
