// SiTU and clamped SwiGLU on lanes, shared by the operators that apply them. Include after a simd_<isa>.h.
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

/// g sigmoid(alpha g) (u + 1) with g = min(gate, limit), u = up within [-limit, limit]. gpt-oss.
/// `constants` = {limit, alpha}.
FL_INLINE Vec clamped_swiglu(Vec gate, Vec up, const float* constants) {
  const Vec limit = broadcast(constants[0]);
  // The order of arguments lets NaN through.
  const Vec g = min(limit, gate);
  const Vec u = min(limit, max(broadcast(-constants[0]), up));
  return (u + broadcast(1.0F)) * (g * sigmoid(g * broadcast(constants[1])));
}

}  // namespace firstlight::FL_ISA_NS
