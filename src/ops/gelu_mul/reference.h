// The executable specification of gelu_mul.
#pragma once

#include <cmath>

namespace firstlight::reference {

/// GeGLU without its projections; gelu as gate (1 + tanh(sqrt(2/pi) (gate + 0.044715 gate^3))) / 2, written
/// with exp because 1 + tanh loses all digits of a large negative gate.
inline double gelu_mul(double gate, double up) {
  const double u = std::sqrt(2 / 3.14159265358979323846) * (gate + 0.044715 * gate * gate * gate);
  return gate / (1 + std::exp(-2 * u)) * up;
}

}  // namespace firstlight::reference
