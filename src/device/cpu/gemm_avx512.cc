#include <cstddef>
#include <cstdint>

#include "device/cpu/gemm_call.h"
#include "device/cpu/simd_avx512.h"

namespace firstlight::avx512 {
namespace {

// 12 x 2 accumulators + 2 weights + X as a broadcast memory operand: 27 of 32 zmm.
constexpr int kMaxRows = 12;
/// One panel, so that memory is read as one stream; few rows wait for memory, not for their few chains.
constexpr int vecs_for(int) { return 2; }
// 12 integer and 12 f32 accumulators, 2 weights and an x: 27 of 32. Of 12 rows the f32 sums lie in memory.
constexpr int kMaxInt8Rows = 12;
constexpr int kMaxNibbleRows = 6;
constexpr int kSumRows = 6;

}  // namespace
}  // namespace firstlight::avx512

#include "device/cpu/gemm_byte_sums.inc"
#include "device/cpu/gemm_pairs.inc"

// After the loops it calls.
#include "device/cpu/gemm_kernels.inc"
