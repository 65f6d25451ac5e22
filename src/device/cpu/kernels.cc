#include "device/cpu/kernels.h"

#include "base/result.h"

namespace firstlight {

const CpuKernels& kernels(Isa isa) {
  static const CpuKernels generic_kernels{Isa::kGeneric, generic::kGemmFunctions};
  static const CpuKernels avx2_kernels{Isa::kAvx2, avx2::kGemmFunctions};
  static const CpuKernels avx512_kernels{Isa::kAvx512, avx512::kGemmFunctions};
  check(isa <= detect(), "kernels asked for an instruction set that this machine lacks");
  switch (isa) {
    case Isa::kAvx2:
      return avx2_kernels;
    case Isa::kAvx512:
      return avx512_kernels;
    case Isa::kGeneric:
      break;
  }
  return generic_kernels;
}

}  // namespace firstlight
