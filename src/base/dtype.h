// Element types of tensors, and exact conversions between them and float.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace firstlight {

enum class DType : std::uint8_t { kF32, kBF16, kF16, kI32, kU8, kI64, kF8E4M3, kF8E8M0 };

/// Bytes of one element.
constexpr std::size_t dtype_size(DType t) {
  switch (t) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
      return 2;
    case DType::kI64:
      return 8;
    case DType::kU8:
    case DType::kF8E4M3:
    case DType::kF8E8M0:
      return 1;
  }
  return 0;
}

/// The name safetensors uses ("F32", "BF16", ...).
constexpr std::string_view dtype_name(DType t) {
  switch (t) {
    case DType::kF32:
      return "F32";
    case DType::kBF16:
      return "BF16";
    case DType::kF16:
      return "F16";
    case DType::kI32:
      return "I32";
    case DType::kU8:
      return "U8";
    case DType::kI64:
      return "I64";
    case DType::kF8E4M3:
      return "F8_E4M3";
    case DType::kF8E8M0:
      return "F8_E8M0";
  }
  return "?";
}

/// bf16 is the upper half of a float: widening is exact.
constexpr float bf16_to_f32(std::uint16_t b) { return std::bit_cast<float>(std::uint32_t{b} << 16); }

/// Rounds to nearest, ties to even; a NaN stays a (quiet) NaN.
constexpr std::uint16_t f32_to_bf16(float f) {
  const auto u = std::bit_cast<std::uint32_t>(f);
  if ((u & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((u >> 16) | 0x40U);
  return static_cast<std::uint16_t>((u + 0x7fffU + ((u >> 16) & 1U)) >> 16);
}

/// IEEE half to float, exact (subnormals, infinities and NaN included).
constexpr float f16_to_f32(std::uint16_t h) {
  const std::uint32_t sign = std::uint32_t{h & 0x8000U} << 16;
  const std::uint32_t exponent = (h >> 10) & 31U;
  const std::uint32_t mantissa = h & 1023U;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (mantissa << 13));
  const float tiny = static_cast<float>(mantissa) * 0x1p-24F;
  return sign != 0 ? -tiny : tiny;
}

/// E4M3 ("fn": no infinities, codes 0x7f and 0xff are NaN) to float, exact.
constexpr float f8e4m3_to_f32(std::uint8_t code) {
  const std::uint32_t sign = std::uint32_t{code & 0x80U} << 24;
  const std::uint32_t exponent = (code >> 3) & 15U;
  const std::uint32_t mantissa = code & 7U;
  if ((code & 0x7fU) == 0x7fU) return std::bit_cast<float>(sign | 0x7fc00000U);
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 120U) << 23) | (mantissa << 20));
  const float tiny = static_cast<float>(mantissa) * 0x1p-9F;
  return sign != 0 ? -tiny : tiny;
}

/// E8M0: a power of two from 2^-127 (subnormal as a float) to 2^127; 255 is NaN.
constexpr float f8e8m0_to_f32(std::uint8_t code) {
  if (code == 255) return std::bit_cast<float>(0x7fc00000U);
  return std::bit_cast<float>(code == 0 ? 0x00400000U : std::uint32_t{code} << 23);
}

}  // namespace firstlight
