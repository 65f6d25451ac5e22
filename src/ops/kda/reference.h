// The executable specification of kda: the recurrence token by token, one head, double inside.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace firstlight::reference {

/// What one head needs besides its inputs.
struct KdaHead {
  std::int64_t dk;
  std::int64_t dv;
  double a_log;
  std::vector<float> dt_bias;  // [dk], or [1] with one decay a head
  bool bounded;                // else softplus
  double lower_bound;
  bool head_decay;
};

/// Inputs of one token and head.
struct KdaToken {
  std::span<const float> q, k;  // [dk]
  std::span<const float> v;     // [dv]
  std::span<const float> f;     // [dk] or [1], the gate before dt_bias
  double beta;                  // before the sigmoid
};

inline double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

/// Advances state [dk, dv] by a token and returns o [dv].
inline std::vector<double> kda_step(const KdaHead& head, const KdaToken& token, std::vector<double>& state) {
  const auto dk = static_cast<std::size_t>(head.dk);
  const auto dv = static_cast<std::size_t>(head.dv);
  constexpr double kEps = 1e-6;  // on the sum of squares, not on the mean
  double qq = kEps;
  double kk = kEps;
  for (std::size_t c = 0; c < dk; ++c) {
    qq += static_cast<double>(token.q[c]) * token.q[c];
    kk += static_cast<double>(token.k[c]) * token.k[c];
  }
  std::vector<double> q(dk);
  std::vector<double> k(dk);
  for (std::size_t c = 0; c < dk; ++c) {
    q[c] = token.q[c] / std::sqrt(qq) / std::sqrt(static_cast<double>(dk));
    k[c] = token.k[c] / std::sqrt(kk);
    const std::size_t d = head.head_decay ? 0 : c;
    const double z = static_cast<double>(token.f[d]) + head.dt_bias[d];
    const double rate = std::exp(head.a_log);
    const double g = head.bounded ? head.lower_bound * sigmoid(rate * z)
                                  : -rate * (std::fmax(z, 0.0) + std::log1p(std::exp(-std::fabs(z))));
    const double alpha = std::exp(g);
    for (std::size_t v = 0; v < dv; ++v) state[c * dv + v] *= alpha;
  }
  const double beta = sigmoid(token.beta);
  std::vector<double> o(dv);
  for (std::size_t v = 0; v < dv; ++v) {
    double error = token.v[v];
    for (std::size_t c = 0; c < dk; ++c) error -= state[c * dv + v] * k[c];
    for (std::size_t c = 0; c < dk; ++c) {
      state[c * dv + v] += k[c] * beta * error;
      o[v] += state[c * dv + v] * q[c];
    }
  }
  return o;
}

}  // namespace firstlight::reference
