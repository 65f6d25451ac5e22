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

// 6 x 16 columns of integers are 12 accumulators, with 2 weights, x and a product all 16 ymm. Their f32 sums
// are met once a group and stay in memory; what weights are unpacked with comes from memory, too.
constexpr int kMaxInt8Rows = 6;
constexpr int kMaxNibbleRows = 6;
constexpr int kSumRows = 0;

FL_INLINE IVec broadcast_4(const std::byte* p) {
  std::int32_t four;
  __builtin_memcpy(&four, p, sizeof(four));
  return broadcast_int(four);
}
alignas(32) constexpr std::uint32_t kEvenBytes[8] = {0x00ff00ff, 0x00ff00ff, 0x00ff00ff, 0x00ff00ff,
                                                     0x00ff00ff, 0x00ff00ff, 0x00ff00ff, 0x00ff00ff};
alignas(32) constexpr std::uint32_t kLowNibbles[8] = {0x0f0f0f0f, 0x0f0f0f0f, 0x0f0f0f0f, 0x0f0f0f0f,
                                                      0x0f0f0f0f, 0x0f0f0f0f, 0x0f0f0f0f, 0x0f0f0f0f};
/// The compiler would hold the mask in a register that a full tile lacks.
FL_INLINE __m256i and_memory(__m256i a, const std::uint32_t (&mask)[8]) {
  __asm__("vpand %1, %0, %0" : "+x"(a) : "m"(mask));
  return a;
}

// Around the intrinsics GCC 12 copies the accumulators of a full tile, which then do not fit.
FL_INLINE __m256i add_to(__m256i acc, __m256i a) {
  __asm__("vpaddd %1, %0, %0" : "+x"(acc) : "x"(a));
  return acc;
}
FL_INLINE __m256i add_halves_to(__m256i acc, __m256i a) {
  __asm__("vpaddw %1, %0, %0" : "+x"(acc) : "x"(a));
  return acc;
}

/// Codes of weights are widened to 16 bits, which costs little beside all the rows they meet, and so is x.
/// vpmaddubsw instead saturates with codes of 8 bits, unless it gets the sizes of one side and the other side
/// with its signs: more instructions for every product. 16 bits also hold both codes of a wide x at once.
template <int Terms>
struct Int8Sums {
  using Group = QuantGroup<std::int16_t, 1, kInt8Group>;  // of every 4 values in the order 0, 2, 1, 3
  static constexpr int kPasses = 1;
  static constexpr int kPhases = 2;  // k and k + 2, then k + 1 and k + 3
  static constexpr std::int64_t kXBytes = 8;
  FL_INLINE void put(Group& g, const IVec (&codes)[Terms][kInt8Group / kLanes]) {
    IVec sum = broadcast_int(0);
#pragma GCC unroll 8
    for (int i = 0; i < kInt8Group / kLanes; ++i) {
      IVec x = codes[0][i];
      if constexpr (Terms == 2) x = shift_left<8>(x) + codes[1][i];
      const __m256i halves = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.lo, x.hi), 0xd8);
      const __m256i ordered = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(halves, 0xd8), 0xd8);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(g.codes[0] + i * kLanes), ordered);
      sum = sum + x;
    }
    g.start[0] = -128 * sum_lanes(sum);
  }
  FL_INLINE IVec load_w(const std::byte* p, int phase) {
    const __m256i lo = load_si256(p);
    const __m256i hi = load_si256(p + 32);
    if (phase == 0) return {and_memory(lo, kEvenBytes), and_memory(hi, kEvenBytes)};
    return {_mm256_srli_epi16(lo, 8), _mm256_srli_epi16(hi, 8)};
  }
  static constexpr std::int64_t kWideBytes = 128;
  FL_INLINE void widen(std::byte* to, const std::byte* from) {
    for (int phase = 0; phase < 2; ++phase) {
      store_int(reinterpret_cast<std::int32_t*>(to + 64 * phase), load_w(from, phase));
    }
  }
  FL_INLINE IVec load_wide(const std::byte* p, int phase) {
    return load_int(reinterpret_cast<const std::int32_t*>(p + 64 * phase));
  }
  FL_INLINE IVec load_x(const std::byte* p, int phase) { return broadcast_4(p + 4 * phase); }
  FL_INLINE IVec dot(IVec acc, IVec w, IVec x) {
    return {add_to(acc.lo, _mm256_madd_epi16(w.lo, x.lo)), add_to(acc.hi, _mm256_madd_epi16(w.hi, x.hi))};
  }
  FL_INLINE IVec integers(IVec acc) { return acc; }
};

/// Sums of 32 products of such small codes fit 16 bits: each half of a lane adds up 16 products of at most
/// 127 times the bias, and what passes beyond 16 bits on the way comes back.
template <int Bias>
struct NibbleSums {
  static_assert(16 * 127 * Bias < 32768 && 2 * 127 * 2 * Bias < 32768);
  using Group = QuantGroup<std::int8_t, 1, kNibbleGroup>;
  static constexpr int kPasses = 1;
  static constexpr int kPhases = 1;
  static constexpr std::int64_t kXBytes = 4;
  FL_INLINE void put(Group& g, const IVec (&codes)[1][kNibbleGroup / kLanes]) {
    __m128i fours[kNibbleGroup / kLanes / 2];  // sums of each 4th code of 32
#pragma GCC unroll 4
    for (int s = 0; s < kNibbleGroup / kLanes / 2; ++s) {
      store_bytes(g.codes[0] + 2 * s * kLanes, codes[0][2 * s]);
      store_bytes(g.codes[0] + (2 * s + 1) * kLanes, codes[0][2 * s + 1]);
      const IVec two = codes[0][2 * s] + codes[0][2 * s + 1];
      const __m256i one = _mm256_add_epi32(two.lo, two.hi);
      fours[s] = _mm_add_epi32(_mm256_castsi256_si128(one), _mm256_extracti128_si256(one, 1));
    }
    const __m128i halves =
        _mm_packs_epi32(_mm_hadd_epi32(fours[0], fours[1]), _mm_hadd_epi32(fours[2], fours[3]));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(g.start), _mm_mullo_epi16(halves, _mm_set1_epi16(-Bias)));
  }
  FL_INLINE IVec nibbles(const std::byte* p, int half) {
    __m256i lo = load_si256(p);
    __m256i hi = load_si256(p + 32);
    if (half != 0) {
      lo = _mm256_srli_epi16(lo, 4);
      hi = _mm256_srli_epi16(hi, 4);
    }
    return {and_memory(lo, kLowNibbles), and_memory(hi, kLowNibbles)};
  }
  FL_INLINE IVec mxfp4_integers(IVec nibbles) {
    __m256i table;
    __asm__ volatile("vbroadcasti128 %1, %0" : "=x"(table) : "m"(kMxfp4Integers));
    return {_mm256_shuffle_epi8(table, nibbles.lo), _mm256_shuffle_epi8(table, nibbles.hi)};
  }
  FL_INLINE IVec load_x(const std::byte* p, int) { return broadcast_4(p); }
  FL_INLINE IVec dot(IVec acc, IVec w, IVec x) {
    return {add_halves_to(acc.lo, _mm256_maddubs_epi16(w.lo, x.lo)),
            add_halves_to(acc.hi, _mm256_maddubs_epi16(w.hi, x.hi))};
  }
  FL_INLINE IVec integers(IVec acc) {
    const __m256i ones = _mm256_set1_epi16(1);
    return {_mm256_madd_epi16(acc.lo, ones), _mm256_madd_epi16(acc.hi, ones)};
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
