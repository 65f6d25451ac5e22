// Y[M, N] = X[M, K] W[N, K]^T with packed weights.
//
// Every output is one chain over k, a function of its row of X and its row of W alone: not of M, of the
// row's position, of the panels computed together, nor of threads. The bits are also the same on every
// instruction set.
//   kF32   y = 0; for k ascending: y = fma(x_k, w_k, y). bf16 weights are widened, which is exact.
//   kBF16  x is rounded to bf16 (nearest even); y = 0; for pairs (k, k+1) ascending: y = y + x_{k+1} w_{k+1}
//          (fused), then + x_k w_k (fused), in the model of vdpbf16ps: denormal inputs are zero and tiny
//          results become zero, whatever MXCSR says. f32 weights make it kF32.
// Quantised weights have one arithmetic of their own. Groups of values of x, 256 beside weights of 8 bits and
// 32 beside 4 bits, become codes -127..127 (nearest even of x 127 / max|x|) and a scale s_g = max|x| / 127;
// sums of products of codes are exact integers.
//   int8        y = 0; for groups g ascending: y = fma(sum_g, s_g, y); then y = y w_scale
//   int8, wide  the same with 256 times the codes, plus second codes: nearest even of 256 times what the
//   first
//               leave of x 127 / max|x|, within +-127; s_g = max|x| / 127 / 256
//   int4, mxfp4 y = 0; for groups g ascending: y = fma(sum_g, w_scale_g * s_g, y)
// A group (of x, or of weights) whose largest value is below 2^-100 counts as 0: the inverse of its scale is
// not finite. Twice the values of MXFP4 are integers; w_scale_h holds the half. Scales below 2^-126 count as
// 0.
//
// An operator that splits work itself calls prepare_x and gemm_panels on each thread; gemm() does it all.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/thread_pool.h"
#include "device/cpu/gemm_call.h"
#include "device/cpu/kernels.h"
#include "device/cpu/packed_matrix.h"

namespace firstlight {

struct GemmArgs {
  const float* x = nullptr;  // [M, K], rows ldx apart
  std::int64_t ldx = 0;
  /// Where not null, rows of x as code_rows made them for weights of this packing; x is not read.
  const std::byte* coded_x = nullptr;
  const std::int32_t* x_rows = nullptr;  // [M] row r of the product is row x_rows[r] of x; null: r
  std::int64_t m = 0;
  const PackedMatrix* w = nullptr;
  float* y = nullptr;  // [M, N], rows ldy apart; only real columns are written
  std::int64_t ldy = 0;
  const std::int32_t* y_rows = nullptr;  // [M] row r goes to row y_rows[r] of y, all different; null: r
  std::int64_t first_column = 0;         // the output column that y[0] stands for
  Arithmetic arithmetic = Arithmetic::kF32;
  bool wide_x = false;      // with int8 weights: X in 16 bits
  void* scratch = nullptr;  // gemm_scratch_bytes, 64-byte aligned; holds X prepared for the kernel
};

/// Bytes of `scratch` for up to `m` rows and `k` columns. The same for all weights and instruction sets.
std::size_t gemm_scratch_bytes(std::int64_t m, std::int64_t k);

/// Blocks of rows that X is prepared in: tiles [0, gemm_tiles(m)).
inline std::int64_t gemm_tiles(std::int64_t m) { return gemm_tile_count(m); }

/// Copies (and under kBF16 rounds) X into scratch. Threads may share one scratch and split the tiles, with
/// a barrier before gemm_panels, or each prepare all tiles in a scratch of its own.
/// Weights of one dtype and the same K, arithmetic and rows can use one preparation.
void prepare_x(const CpuKernels& kernels, const GemmArgs& args, std::int64_t tile_begin,
               std::int64_t tile_end);

/// Whether products with such weights read x in 8 bits.
bool is_quantised(Packing packing);
/// Bytes of one row of K values that are quantised. The same for all weights and instruction sets.
std::int64_t coded_row_bytes(std::int64_t k);
/// Quantises rows of x [rows, K] for weights of that packing: work that many products of the same rows share.
/// coded [rows][coded_row_bytes(K)].
void code_rows(const CpuKernels& kernels, Packing packing, const float* x, std::int64_t ldx,
               std::int64_t rows, std::int64_t k, std::byte* coded);

/// Computes all M rows of the outputs of panels [panel_begin, panel_end) of W from the prepared scratch.
void gemm_panels(const CpuKernels& kernels, const GemmArgs& args, std::int64_t panel_begin,
                 std::int64_t panel_end);

/// Prepares X and computes all of Y; thread t takes a contiguous range of panels.
void gemm(ThreadPool& pool, const CpuKernels& kernels, const GemmArgs& args);

}  // namespace firstlight
