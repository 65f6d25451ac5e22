// The instruction sets that kernels exist for, and which of them this machine can run.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace firstlight {

/// Ascending: each one includes those before it.
enum class Isa {
  kGeneric,  // plain C++
  kAvx2,     // AVX2, FMA, F16C, BMI2
  kAvx512,   // AVX-512 F, BW, DQ, VL, BF16, VNNI, VBMI
};
inline constexpr std::array kAllIsas = {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512};

/// "generic", "avx2", "avx512".
std::string_view isa_name(Isa isa);

/// The best one that the CPU has and the operating system saves the registers of.
Isa detect();

/// All that can run here, kGeneric first.
std::vector<Isa> available_isas();

/// detect(), or what the environment variable FIRSTLIGHT_ISA names. An unknown or unsupported name is an
/// Error that lists what is available.
Result<Isa> choose_isa();
/// The same with the variable's value as an argument; nullptr or "" when it is not set.
Result<Isa> choose_isa(const char* requested);

/// The features of this CPU that matter to the kernels, e.g. {"avx2", "fma", ..., "avx512_bf16"}.
std::vector<std::string> cpu_features();

}  // namespace firstlight
