// MXFP4: 32 four-bit floats (E2M1: sign, two exponent bits, one mantissa bit) share one power of two (E8M0).
#pragma once

#include <array>
#include <cstdint>

namespace firstlight {

inline constexpr std::int64_t kMXFP4Group = 32;
inline constexpr int kMXFP4NaNScale = 255;
/// From this scale byte on, the larger codes exceed the range of bf16 and float: 4 * 2^(253-127) = 2^128.
inline constexpr int kMXFP4FirstOverflowingScale = 253;

/// bf16 bits of `code` (0..15) times 2^(scale - 127), exactly. Subnormal values come out as subnormal
/// bits, whatever the floating-point mode of the thread; values beyond the range as infinity.
constexpr std::uint16_t mxfp4_value(int code, int scale) {
  const auto sign = static_cast<std::uint16_t>((code & 8) << 12);
  const int exponent_bits = (code >> 1) & 3;
  const int mantissa = code & 1;
  if ((code & 7) == 0) return sign;
  if (scale == kMXFP4NaNScale) return static_cast<std::uint16_t>(sign | 0x7fc0);
  // value = 1.m * 2^(e-1) for e > 0; the one subnormal code is 0.5 = 1.0 * 2^-1. bf16 exponents are biased by
  // 127, so scale - 127 + 127 = scale is the biased exponent of 1.0.
  const int biased = scale + (exponent_bits == 0 ? -1 : exponent_bits - 1);
  const int fraction = exponent_bits == 0 ? 0 : mantissa << 6;  // of 7 fraction bits
  if (biased >= 255) return static_cast<std::uint16_t>(sign | 0x7f80);
  if (biased >= 1) return static_cast<std::uint16_t>(sign | (biased << 7) | fraction);
  return static_cast<std::uint16_t>(sign | ((128 | fraction) >> (1 - biased)));  // biased is 0 or -1
}

/// [scale][code]
inline constexpr auto kMXFP4Values = [] {
  std::array<std::array<std::uint16_t, 16>, 256> table{};
  for (int scale = 0; scale < 256; ++scale) {
    for (int code = 0; code < 16; ++code) {
      table[static_cast<std::size_t>(scale)][static_cast<std::size_t>(code)] = mxfp4_value(code, scale);
    }
  }
  return table;
}();

}  // namespace firstlight
