// The vector vocabulary of one instruction set behind function pointers, so that tests can compare the
// instruction sets with each other and with double. The engine does not use it.
#pragma once

#include <cstdint>

namespace firstlight {

enum class VecOp : std::uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFma,
  kSqrt,
  kMax,
  kMin,
  kNegate,
  kAbs,
  kCopysign,
  kRoundToBf16,
  kSelectLess,       // a < b ? b : c
  kSelectLessEqual,  // a <= b ? b : c
  kSelectEqual,
  kRoundToInt,  // as float, through int32
  kRoundEven,
  kShift,  // (a >> 3 signed) + ((a >> 5) ^ (a << 7)) - (b & c) | 1, on the bits
  kSwapNeighbours,
  kLookup,  // from the 16 values of b by the low bits of a
  kExp,
  kSigmoid,
  kSilu,
  kTanh,
  kSoftplus,
  kLog1pUnit,
};
inline constexpr int kVecOps = static_cast<int>(VecOp::kLog1pUnit) + 1;

struct VecProbe {
  const char* (*compiled_as)();
  /// out[i] = op(a[i], b[i], c[i]) for n <= 16 lanes.
  void (*apply)(VecOp op, const float* a, const float* b, const float* c, float* out, int n);
  float (*reduce_add)(const float* a);  // [16]
  float (*reduce_max)(const float* a);  // [16]
  void (*store_bf16)(const float* a, std::uint16_t* out, int n);
  void (*load_bf16)(const std::uint16_t* a, float* out, int n);
  void (*load_f16)(const std::uint16_t* a, float* out);  // [16]
  void (*widen_u8)(const std::uint8_t* a, float* out);   // [16]
  /// 16 lanes of acc + pairs; broadcast: b's first pair for every lane.
  void (*dot_pairs)(const float* acc, const std::uint16_t* a, const std::uint16_t* b, bool broadcast,
                    float* out);
  void (*transpose)(const float* in, float* out);  // [16, 16]
  /// [32] each -> out [2, 16 pairs]: low, high
  void (*interleave)(const std::uint16_t* a, const std::uint16_t* b, std::uint16_t* out);
};

namespace generic {
extern const VecProbe kVecProbe;
}
namespace avx2 {
extern const VecProbe kVecProbe;
}
namespace avx512 {
extern const VecProbe kVecProbe;
}

}  // namespace firstlight
