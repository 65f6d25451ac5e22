// Sine and cosine in double by plain arithmetic, so that every machine gets the same bits (libm's differ).
#pragma once

#include <cmath>
#include <cstdint>

namespace firstlight {

struct SinCos {
  double sin, cos;
};

/// |x| <= 2^28; absolute error below 1e-15. The angle is reduced by a multiple k of pi/2, given in three
/// parts of 25, 25 and 53 bits: k times the first two is exact.
inline SinCos sin_cos(double x) {
  constexpr double kHigh = 0x1.921fb5p+0;
  constexpr double kMiddle = 0x1.110b46p-26;
  constexpr double kLow = 0x1.1a62633145c07p-54;
  const double k = std::nearbyint(x * 0x1.45f306dc9c883p-1);
  const double r = ((x - k * kHigh) - k * kMiddle) - k * kLow;
  const double z = r * r;
  // Taylor: the first term left out is below 1e-17 on |r| <= pi/4.
  double s = 0;
  double c = 0;
  for (int n = 17; n >= 3; n -= 2) s = (1 + s) * (-z / (n * (n - 1)));
  for (int n = 18; n >= 2; n -= 2) c = (1 + c) * (-z / (n * (n - 1)));
  const double sin_r = r + r * s;
  const double cos_r = 1 + c;
  switch (static_cast<std::uint64_t>(static_cast<std::int64_t>(k)) & 3U) {
    case 0:
      return {sin_r, cos_r};
    case 1:
      return {cos_r, -sin_r};
    case 2:
      return {-sin_r, -cos_r};
    default:
      return {-cos_r, sin_r};
  }
}

}  // namespace firstlight
