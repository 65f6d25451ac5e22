#include "device/cpu/simd_avx2.h"
#include "device/cpu/vec_probe_kernels.inc"
