// The executable specification of moe_experts.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/silu_mul/reference.h"
#include "ops/situ_mul/reference.h"

namespace firstlight::reference {

struct Expert {
  std::vector<float> gate, up, down;  // W1, W3 [width, size], W2 [size, width]
};

struct Mixed {
  std::vector<double> y;     // [size]
  std::vector<double> sums;  // [size] what y sums in absolute values: the measure of its rounding errors
};

/// One row: x [size], the chosen experts with their weights. spec kimi 3.5.
/// beta = 0: SiLU; else SiTU with these limits.
inline Mixed moe_experts(std::span<const float> x, std::span<const std::int32_t> chosen,
                         std::span<const float> weights, const std::vector<Expert>& experts, double beta,
                         double linear_beta) {
  Mixed out{std::vector<double>(x.size(), 0.0), std::vector<double>(x.size(), 0.0)};
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const Expert& expert = experts[static_cast<std::size_t>(chosen[i])];
    const std::size_t width = expert.gate.size() / x.size();
    std::vector<double> hidden;
    for (std::size_t h = 0; h < width; ++h) {
      double gate = 0;
      double up = 0;
      for (std::size_t c = 0; c < x.size(); ++c) {
        gate += static_cast<double>(expert.gate[h * x.size() + c]) * x[c];
        up += static_cast<double>(expert.up[h * x.size() + c]) * x[c];
      }
      hidden.push_back(beta == 0 ? silu_mul(gate, up) : situ_mul(gate, up, beta, linear_beta));
    }
    for (std::size_t c = 0; c < x.size(); ++c) {
      for (std::size_t h = 0; h < width; ++h) {
        const double term = static_cast<double>(weights[i]) * expert.down[c * width + h] * hidden[h];
        out.y[c] += term;
        out.sums[c] += std::abs(term);
      }
    }
  }
  return out;
}

}  // namespace firstlight::reference
