// Rows of weights in 8 and 4 bits, round to nearest (ties to even). A NaN or an infinity in a group makes its
// scale NaN, so that nothing computed from it looks like a number.
//
//   8 bits   codes -127..127, one scale max|w| / 127 a row
//   4 bits   codes -8..7, a scale max|w| / 7.5, rounded to bf16, for 32 inputs (that of compressed-tensors)
//   MXFP4    codes of E2M1, a power of two for 32 inputs, the one of two candidates with the smaller squared
//            error (OCP Microscaling Formats 1.0)
#pragma once

#include <cstdint>

namespace firstlight {

inline constexpr std::int64_t kWeightGroup = 32;

/// codes [k]; returns the scale.
float quantise_int8(const float* w, std::int64_t k, std::int8_t* codes);
/// codes [k], scales [ceil(k / 32)] as bf16.
void quantise_int4(const float* w, std::int64_t k, std::int8_t* codes, std::uint16_t* scales);
/// codes [k] 0..15, scales [ceil(k / 32)] as E8M0 (255: NaN).
void quantise_mxfp4(const float* w, std::int64_t k, std::int8_t* codes, std::uint8_t* scales);

/// The value of a code of E2M1.
float e2m1_value(int code);

}  // namespace firstlight
