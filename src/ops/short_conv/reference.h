// The executable specification of short_conv.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace firstlight::reference {

/// x [tokens, channels] from the start of a sequence, w [channels, taps] -> y [tokens, channels].
inline std::vector<double> short_conv(std::span<const float> x, std::span<const float> w,
                                      std::int64_t channels) {
  const std::int64_t tokens = std::ssize(x) / channels;
  const std::int64_t taps = std::ssize(w) / channels;
  std::vector<double> y(x.size());
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t c = 0; c < channels; ++c) {
      double sum = 0;
      for (std::int64_t j = 0; j < taps; ++j) {
        const std::int64_t from = t - taps + 1 + j;  // tap taps - 1 is the current token
        if (from < 0) continue;                      // missing history is zero
        sum += static_cast<double>(w[static_cast<std::size_t>(c * taps + j)]) *
               x[static_cast<std::size_t>(from * channels + c)];
      }
      y[static_cast<std::size_t>(t * channels + c)] = sum / (1.0 + std::exp(-sum));
    }
  }
  return y;
}

}  // namespace firstlight::reference
