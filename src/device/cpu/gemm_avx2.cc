#include <cstddef>
#include <cstdint>

#include "device/cpu/gemm_call.h"
#include "device/cpu/simd_avx2.h"

namespace firstlight::avx2 {
namespace {

// 6 x 16 columns are 12 accumulators, with 2 weights and a broadcast 15 of 16 ymm.
constexpr int kMaxRows = 6;
/// From 3 rows on half a panel, for the sake of registers; fewer wait for memory and read it as one stream.
constexpr int vecs_for(int rows) { return rows <= 2 ? 2 : 1; }

// 4 x 16 columns are 8 accumulators; two weights, their sizes, x and three temporaries fill the rest.
constexpr int kMaxQuantisedRows = 4;

/// vpmaddubsw saturates at 16 bits: the size of one side times the other with its sign, both within 127, does
/// not. That takes the bias out as well.
struct BiasedBytes {
  static constexpr int kBias = 0;
  FL_INLINE __m256i dot_8(__m256i acc, __m256i w, __m256i x) {
    const __m256i codes = _mm256_xor_si256(w, _mm256_set1_epi8(-128));
    return dot_bytes_8(acc, _mm256_abs_epi8(x), _mm256_sign_epi8(codes, x));
  }
  FL_INLINE IVec dot(IVec acc, IVec w, IVec x) {
    return {dot_8(acc.lo, w.lo, x.lo), dot_8(acc.hi, w.hi, x.hi)};
  }
};

/// bf16 pairs widened: the same chain as vdpbf16ps, odd element first. enter_bf16_mode makes the FMA flush
/// as that instruction does, so even the bits of extreme values are the same.
struct Bf16 {
  static constexpr int kDepth = 2;
  static constexpr int kPhases = 2;  // odd k, then even
  static constexpr std::int64_t kXBytes = 8;
  FL_INLINE Vec load_w(const std::byte* p, int phase) { return widened(p, 1 - phase); }
  FL_INLINE Vec load_x(const std::byte* p, int phase) {
    return broadcast(reinterpret_cast<const float*>(p)[1 - phase]);
  }
  FL_INLINE Vec add(Vec y, Vec x, Vec w) { return fma(x, w, y); }
  /// n <= 16 values of a row, rounded to bf16, into a block.
  FL_INLINE void convert(std::byte* block, const float* x, int n) {
    store(reinterpret_cast<float*>(block), round_to_bf16(load_n(x, n)));
  }
};

}  // namespace
}  // namespace firstlight::avx2

#include "device/cpu/gemm_kernels.inc"
