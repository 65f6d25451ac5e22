// Sums over a row as one fixed tree: lane i adds elements i, i + 16, i + 32, ... in order, then the lanes
// are folded by reduce_add. Any width; the tail enters as masked lanes. Include after a simd_<isa>.h.
#pragma once

#ifndef FL_ISA_NS
#error "include a simd_<isa>.h first"
#endif

#include <cstdint>

namespace firstlight::FL_ISA_NS {

/// Calls body(i, lanes) for the blocks of 16 elements of [0, n); lanes < 16 only in the last.
template <class Body>
FL_INLINE void each_block(std::int64_t n, const Body& body) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, kLanes);
  if (i < n) body(i, static_cast<int>(n - i));
}

/// sum x^2
FL_INLINE float sum_squares(const float* x, std::int64_t n) {
  Vec sum = zero();
  each_block(n, [&](std::int64_t i, int lanes) {
    const Vec v = load_n(x + i, lanes);
    sum = fma(v, v, sum);
  });
  return reduce_add(sum);
}

/// 1 / sqrt(x), both correctly rounded: estimates differ between instruction sets.
FL_INLINE Vec inverse_sqrt(float x) { return broadcast(1.0F) / sqrt(broadcast(x)); }

}  // namespace firstlight::FL_ISA_NS
