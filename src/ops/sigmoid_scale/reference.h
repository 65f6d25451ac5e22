// The executable specification of sigmoid_scale.
#pragma once

#include "ops/sigmoid_mul/reference.h"

namespace firstlight::reference {

inline double sigmoid_scale(float x, float gate) { return sigmoid_mul(x, gate); }

}  // namespace firstlight::reference
