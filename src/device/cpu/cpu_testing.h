// Shared by the tests of this folder.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <vector>

#include "device/cpu/isa.h"
#include "device/cpu/vec_probe.h"

namespace firstlight::testing {

inline const VecProbe& probe(Isa isa) {
  switch (isa) {
    case Isa::kAvx2:
      return avx2::kVecProbe;
    case Isa::kAvx512:
      return avx512::kVecProbe;
    case Isa::kGeneric:
      break;
  }
  return generic::kVecProbe;
}

inline std::uint32_t bits_of(float f) { return std::bit_cast<std::uint32_t>(f); }
inline float float_of(std::uint32_t u) { return std::bit_cast<float>(u); }

/// What a test compares: all that run here, or under FIRSTLIGHT_ISA plain C++ and the forced one.
inline std::vector<Isa> tested_isas() {
  const Result<Isa> chosen = choose_isa();
  if (std::getenv("FIRSTLIGHT_ISA") == nullptr || !chosen.ok()) return available_isas();
  if (*chosen == Isa::kGeneric) return {Isa::kGeneric};
  return {Isa::kGeneric, *chosen};
}

/// Equal bits; any NaN equals any NaN.
inline bool same(float a, float b) { return bits_of(a) == bits_of(b) || (std::isnan(a) && std::isnan(b)); }

/// Any finite float: all exponents equally likely, denormals among them, often few mantissa bits.
inline float any_finite(std::mt19937& random) {
  std::uint32_t u = static_cast<std::uint32_t>(random());
  if (random() % 4 == 0) u &= 0xffff0000U;
  if ((u & 0x7f800000U) == 0x7f800000U) u &= 0xbfffffffU;
  return float_of(u);
}

}  // namespace firstlight::testing
