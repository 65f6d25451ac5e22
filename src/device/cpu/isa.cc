#include "device/cpu/isa.h"

#include <cpuid.h>

#include <cstdint>
#include <cstdlib>

namespace firstlight {

namespace {

struct Registers {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(unsigned leaf, unsigned subleaf) {
  Registers r;
  if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
  return r;
}

std::uint64_t saved_register_states() {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (std::uint64_t{high} << 32) | low;
}

struct Feature {
  std::string_view name;
  bool present;
};

struct Cpu {
  bool f16c, fma, avx2, bmi2;
  bool avx512f, avx512bw, avx512dq, avx512vl, avx512_bf16, avx512_vnni, avx512vbmi;
  bool avx_vnni, amx_bf16, amx_int8;
};

Cpu read_cpu() {
  const Registers one = cpuid(1, 0);
  const Registers seven = cpuid(7, 0);
  // Subleaf 1 exists when subleaf 0 says so in eax.
  const Registers seven_one = seven.eax >= 1 ? cpuid(7, 1) : Registers{};
  const auto bit = [](unsigned word, int n) { return ((word >> n) & 1U) != 0; };
  const std::uint64_t states = bit(one.ecx, 27) ? saved_register_states() : 0;  // OSXSAVE
  const bool ymm = (states & 0x6U) == 0x6U;                                     // SSE, AVX
  const bool zmm = ymm && (states & 0xe0U) == 0xe0U;                            // opmask, ZMM
  const bool tiles = (states & 0x60000U) == 0x60000U;                           // AMX
  return {.f16c = ymm && bit(one.ecx, 29),
          .fma = ymm && bit(one.ecx, 12),
          .avx2 = ymm && bit(seven.ebx, 5),
          .bmi2 = bit(seven.ebx, 8),
          .avx512f = zmm && bit(seven.ebx, 16),
          .avx512bw = zmm && bit(seven.ebx, 30),
          .avx512dq = zmm && bit(seven.ebx, 17),
          .avx512vl = zmm && bit(seven.ebx, 31),
          .avx512_bf16 = zmm && bit(seven_one.eax, 5),
          .avx512_vnni = zmm && bit(seven.ecx, 11),
          .avx512vbmi = zmm && bit(seven.ecx, 1),
          .avx_vnni = ymm && bit(seven_one.eax, 4),
          .amx_bf16 = tiles && bit(seven.edx, 22),
          .amx_int8 = tiles && bit(seven.edx, 25)};
}

std::string available_text() {
  std::string text;
  for (const Isa isa : available_isas()) {
    if (!text.empty()) text += ", ";
    text += isa_name(isa);
  }
  return text;
}

}  // namespace

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::kGeneric:
      return "generic";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  return "?";
}

Isa detect() {
  const Cpu c = read_cpu();
  if (!(c.avx2 && c.fma && c.f16c && c.bmi2)) return Isa::kGeneric;
  const bool avx512 =
      c.avx512f && c.avx512bw && c.avx512dq && c.avx512vl && c.avx512_bf16 && c.avx512_vnni && c.avx512vbmi;
  return avx512 ? Isa::kAvx512 : Isa::kAvx2;
}

std::vector<Isa> available_isas() {
  std::vector<Isa> found;
  const Isa best = detect();
  for (const Isa isa : kAllIsas) {
    if (isa <= best) found.push_back(isa);
  }
  return found;
}

Result<Isa> choose_isa(const char* requested) {
  if (requested == nullptr || *requested == '\0') return detect();
  for (const Isa isa : kAllIsas) {
    if (requested != isa_name(isa)) continue;
    if (isa <= detect()) return isa;
    return Error{"FIRSTLIGHT_ISA: this machine cannot run \"" + std::string(requested) +
                 "\"; available: " + available_text()};
  }
  return Error{"FIRSTLIGHT_ISA: unknown instruction set \"" + std::string(requested) +
               "\"; available: " + available_text()};
}

Result<Isa> choose_isa() { return choose_isa(std::getenv("FIRSTLIGHT_ISA")); }

std::vector<std::string> cpu_features() {
  const Cpu c = read_cpu();
  const std::array features = {Feature{"f16c", c.f16c},
                               Feature{"fma", c.fma},
                               Feature{"avx2", c.avx2},
                               Feature{"bmi2", c.bmi2},
                               Feature{"avx512f", c.avx512f},
                               Feature{"avx512bw", c.avx512bw},
                               Feature{"avx512dq", c.avx512dq},
                               Feature{"avx512vl", c.avx512vl},
                               Feature{"avx512_bf16", c.avx512_bf16},
                               Feature{"avx512_vnni", c.avx512_vnni},
                               Feature{"avx512vbmi", c.avx512vbmi},
                               Feature{"avx_vnni", c.avx_vnni},
                               Feature{"amx_bf16", c.amx_bf16},
                               Feature{"amx_int8", c.amx_int8}};
  std::vector<std::string> found;
  for (const Feature& f : features) {
    if (f.present) found.emplace_back(f.name);
  }
  return found;
}

}  // namespace firstlight
