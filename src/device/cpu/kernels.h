// One table of functions per instruction set: how the engine reaches the code of a *_<isa>.cc file.
#pragma once

#include "device/cpu/gemm_call.h"
#include "device/cpu/isa.h"

namespace firstlight {

struct CpuKernels {
  Isa isa;
  GemmFunctions gemm;
};

/// The table of `isa`, which must be one of available_isas().
const CpuKernels& kernels(Isa isa);

}  // namespace firstlight
