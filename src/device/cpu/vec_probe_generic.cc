#include "device/cpu/simd_generic.h"
#include "device/cpu/vec_probe_kernels.inc"
