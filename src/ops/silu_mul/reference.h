// The executable specification of silu_mul.
#pragma once

#include "ops/sigmoid_mul/reference.h"

namespace firstlight::reference {

/// SwiGLU without its projections: Shazeer 2020, arXiv 2002.05202, section 2.
inline double silu_mul(double gate, double up) { return gate * sigmoid(gate) * up; }

}  // namespace firstlight::reference
