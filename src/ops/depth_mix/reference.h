// The executable specification of depth_mix.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace firstlight::reference {

/// sources [n][D], norm and proj [D] -> [D]; double inside.
inline std::vector<double> depth_mix(std::span<const std::vector<float>> sources, std::span<const float> norm,
                                     std::span<const float> proj, double eps) {
  const std::size_t width = norm.size();
  std::vector<double> score;
  for (const std::vector<float>& v : sources) {
    double squares = 0;
    for (const float x : v) squares += static_cast<double>(x) * x;
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(width) + eps);
    double s = 0;
    for (std::size_t c = 0; c < width; ++c) s += v[c] * scale * norm[c] * proj[c];
    score.push_back(s);
  }
  const double top = *std::ranges::max_element(score);
  double sum = 0;
  for (double& s : score) sum += s = std::exp(s - top);
  std::vector<double> h(width, 0.0);
  for (std::size_t s = 0; s < sources.size(); ++s) {
    for (std::size_t c = 0; c < width; ++c) h[c] += score[s] / sum * sources[s][c];
  }
  return h;
}

}  // namespace firstlight::reference
