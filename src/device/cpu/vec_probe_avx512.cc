#include "device/cpu/simd_avx512.h"
#include "device/cpu/vec_probe_kernels.inc"
