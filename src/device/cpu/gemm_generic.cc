#include <cstddef>
#include <cstdint>

#include "device/cpu/gemm_call.h"
#include "device/cpu/simd_generic.h"

namespace firstlight::generic {
namespace {

// Nothing to keep in registers; small tiles compile faster.
constexpr int kMaxRows = 4;
constexpr int vecs_for(int) { return 2; }
constexpr int kMaxInt8Rows = 2;
constexpr int kMaxNibbleRows = 2;
constexpr int kSumRows = 2;

}  // namespace
}  // namespace firstlight::generic

#include "device/cpu/gemm_byte_sums.inc"
#include "device/cpu/gemm_pairs.inc"

// After the loops it calls.
#include "device/cpu/gemm_kernels.inc"
