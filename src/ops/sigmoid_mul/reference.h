// The executable specification of sigmoid_mul.
#pragma once

#include <cmath>

namespace firstlight::reference {

inline double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

/// spec kimi 3.4 (the output gate).
inline double sigmoid_mul(float x, float gate) { return x * sigmoid(gate); }

}  // namespace firstlight::reference
