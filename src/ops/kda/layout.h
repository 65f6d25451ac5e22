// The state block of kda: one stretch of f32 a head, heads after one another.
#pragma once

#include <cstdint>

namespace firstlight {

/// Rows of a chunk; chunks start at absolute multiples of it (spec kimi 4.6).
inline constexpr std::int64_t kKdaChunk = 16;
/// Value columns of a panel: a row of a panel is two cache lines, so a read of S_0 never strides.
inline constexpr std::int64_t kKdaPanel = 32;

/// Of one head, in floats and in this order; every part is a multiple of 16 floats:
///   s0 [panels, dk, 32]   state at the start of the open chunk, value column v in panel v / 32
///   c  [key_stride]       product of the decays of the open rows
///   r  [16, key_stride]   keys of the open rows, decayed to the latest row
///   x  [16, value_stride] solved rows
/// Padding of s0, r and x is zero; padding of c is never used. The position says what is valid: rows of r and
/// x past position % 16, c at a chunk's start and s0 before position 16 are stale and not read.
struct KdaLayout {
  std::int64_t dk;
  std::int64_t dv;

  [[nodiscard]] std::int64_t panels() const { return (dv + kKdaPanel - 1) / kKdaPanel; }
  [[nodiscard]] std::int64_t key_stride() const { return (dk + 15) / 16 * 16; }
  [[nodiscard]] std::int64_t value_stride() const { return panels() * kKdaPanel; }
  [[nodiscard]] std::int64_t s0_floats() const { return dk * value_stride(); }
  [[nodiscard]] std::int64_t c() const { return s0_floats(); }
  [[nodiscard]] std::int64_t r() const { return c() + key_stride(); }
  [[nodiscard]] std::int64_t x() const { return r() + kKdaChunk * key_stride(); }
  [[nodiscard]] std::int64_t head_floats() const { return x() + kKdaChunk * value_stride(); }
};

}  // namespace firstlight
