// The executable specification of moe_experts.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace firstlight::reference {

struct Expert {
  std::vector<float> gate, up, down;                 // W1, W3 [width, size], W2 [size, width]
  std::vector<float> gate_bias, up_bias, down_bias;  // [width], [width], [size], or all empty
};

/// act(gate) * up of gpt-oss: the gate is bounded above, up on both sides and moved by 1.
inline double clamped_swiglu(double gate, double up, double limit, double alpha) {
  const double g = std::min(gate, limit);
  const double u = std::max(-limit, std::min(up, limit));
  return g / (1 + std::exp(-alpha * g)) * (u + 1);
}

struct Mixed {
  std::vector<double> y;     // [size]
  std::vector<double> sums;  // [size] what y sums in absolute values: the measure of its rounding errors
};

/// One row: x [size], the chosen experts with their weights. spec kimi 3.5.
inline Mixed moe_experts(std::span<const float> x, std::span<const std::int32_t> chosen,
                         std::span<const float> weights, const std::vector<Expert>& experts,
                         const std::function<double(double, double)>& activation) {
  Mixed out{std::vector<double>(x.size(), 0.0), std::vector<double>(x.size(), 0.0)};
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const Expert& expert = experts[static_cast<std::size_t>(chosen[i])];
    const std::size_t width = expert.gate.size() / x.size();
    std::vector<double> hidden;
    for (std::size_t h = 0; h < width; ++h) {
      double gate = expert.gate_bias.empty() ? 0.0 : expert.gate_bias[h];
      double up = expert.up_bias.empty() ? 0.0 : expert.up_bias[h];
      for (std::size_t c = 0; c < x.size(); ++c) {
        gate += static_cast<double>(expert.gate[h * x.size() + c]) * x[c];
        up += static_cast<double>(expert.up[h * x.size() + c]) * x[c];
      }
      hidden.push_back(activation(gate, up));
    }
    for (std::size_t c = 0; c < x.size(); ++c) {
      if (!expert.down_bias.empty()) {
        const double term = static_cast<double>(weights[i]) * expert.down_bias[c];
        out.y[c] += term;
        out.sums[c] += std::abs(term);
      }
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
