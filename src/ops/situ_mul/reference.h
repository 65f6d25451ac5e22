// The executable specification of situ_mul.
#pragma once

#include <cmath>

#include "ops/sigmoid_mul/reference.h"

namespace firstlight::reference {

/// spec kimi 3.6. linear_beta = 0: `up` as it is.
inline double situ_mul(double gate, double up, double beta, double linear_beta) {
  const double limited = linear_beta == 0 ? up : linear_beta * std::tanh(up / linear_beta);
  return beta * std::tanh(gate / beta) * sigmoid(gate) * limited;
}

}  // namespace firstlight::reference
