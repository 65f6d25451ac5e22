#include "device/cpu/quantise.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/dtype.h"

namespace firstlight {
namespace {

constexpr std::array<float, 8> kE2M1 = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
// Halfway between neighbours; at a tie the even code wins.
constexpr std::array<float, 7> kE2M1Middles = {0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5.0F};
constexpr int kNaNExponent = 255;

struct Extent {
  float largest = 0;
  bool finite = true;
};
Extent extent_of(const float* w, std::int64_t n) {
  float largest = 0;
  float poison = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    largest = std::max(largest, std::fabs(w[i]));
    poison += w[i] * 0.0F;
  }
  return {largest, poison == 0.0F};
}

std::int8_t nearest(float x, float low, float high) {
  // Adding and taking 1.5 2^23 rounds to nearest even without a call.
  constexpr float kRound = 12582912.0F;
  const float bounded = std::min(std::max(x, low), high);
  return static_cast<std::int8_t>((bounded + kRound) - kRound);
}

int e2m1_code(float x) {
  const float size = std::fabs(x);
  int code = 0;
  for (int i = 0; i < 7; ++i) {
    const float middle = kE2M1Middles[static_cast<std::size_t>(i)];
    code += size > middle || (size == middle && i % 2 == 1) ? 1 : 0;
  }
  return code | (std::signbit(x) && code != 0 ? 8 : 0);
}

double squared_error(const float* w, std::int64_t n, int exponent) {
  const float inverse = std::ldexp(1.0F, -exponent);
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const float error = w[i] * inverse - e2m1_value(e2m1_code(w[i] * inverse));
    sum += static_cast<double>(error) * static_cast<double>(error);
  }
  return std::ldexp(sum, 2 * exponent);
}

}  // namespace

float e2m1_value(int code) {
  const float size = kE2M1[static_cast<std::size_t>(code & 7)];
  return (code & 8) != 0 ? -size : size;
}

float quantise_int8(const float* w, std::int64_t k, std::int8_t* codes) {
  const Extent e = extent_of(w, k);
  const float scale = e.finite ? e.largest / 127.0F : std::numeric_limits<float>::quiet_NaN();
  const float inverse = e.finite && e.largest > 0x1p-100F ? 127.0F / e.largest : 0.0F;
  for (std::int64_t i = 0; i < k; ++i) codes[i] = e.finite ? nearest(w[i] * inverse, -127.0F, 127.0F) : 0;
  return scale;
}

void quantise_int4(const float* w, std::int64_t k, std::int8_t* codes, std::uint16_t* scales) {
  for (std::int64_t from = 0; from < k; from += kWeightGroup) {
    const std::int64_t n = std::min(kWeightGroup, k - from);
    const Extent e = extent_of(w + from, n);
    std::uint16_t& stored = scales[from / kWeightGroup];
    stored = f32_to_bf16(e.finite ? e.largest / 7.5F : std::numeric_limits<float>::quiet_NaN());
    const float scale = bf16_to_f32(stored);
    const float inverse = e.finite && scale > 0x1p-100F ? 1.0F / scale : 0.0F;
    for (std::int64_t i = from; i < from + n; ++i)
      codes[i] = e.finite ? nearest(w[i] * inverse, -8.0F, 7.0F) : 0;
  }
}

void quantise_mxfp4(const float* w, std::int64_t k, std::int8_t* codes, std::uint8_t* scales) {
  for (std::int64_t from = 0; from < k; from += kWeightGroup) {
    const std::int64_t n = std::min(kWeightGroup, k - from);
    const Extent e = extent_of(w + from, n);
    std::uint8_t& stored = scales[from / kWeightGroup];
    if (!e.finite || e.largest < 0x1p-100F) {
      stored = static_cast<std::uint8_t>(e.finite ? 127 : kNaNExponent);
      std::fill_n(codes + from, n, std::int8_t{0});
      continue;
    }
    const int low = std::ilogb(e.largest) - 2;  // the largest becomes 4 .. 8, of which 6 is representable
    const int exponent =
        squared_error(w + from, n, low) <= squared_error(w + from, n, low + 1) ? low : low + 1;
    stored = static_cast<std::uint8_t>(exponent + 127);
    const float inverse = std::ldexp(1.0F, -exponent);
    for (std::int64_t i = from; i < from + n; ++i)
      codes[i] = static_cast<std::int8_t>(e2m1_code(w[i] * inverse));
  }
}

}  // namespace firstlight
