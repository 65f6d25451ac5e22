// SiTU and SwiGLU on lanes, shared by the operators that apply them. Include after a simd_<isa>.h.
#pragma once

#include "device/cpu/vec_math.h"

namespace firstlight::FL_ISA_NS {

/// beta tanh(gate / beta) sigmoid(gate) * lambda tanh(up / lambda), lambda = 0: up as it is. spec kimi 3.6.
/// `constants` = {beta, lambda}.
FL_INLINE Vec situ(Vec gate, Vec up, const float* constants) {
  const Vec beta = broadcast(constants[0]);
  const Vec g = beta * tanh(gate / beta) * sigmoid(gate);
  if (constants[1] == 0.0F) return g * up;
  const Vec lambda = broadcast(constants[1]);
  return g * (lambda * tanh(up / lambda));
}

}  // namespace firstlight::FL_ISA_NS
