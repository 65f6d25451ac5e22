#include <cstddef>
#include <cstdint>

#include "device/cpu/gemm_call.h"
#include "device/cpu/simd_generic.h"

namespace firstlight::generic {
namespace {

// Nothing to keep in registers; small tiles compile faster.
constexpr int kMaxRows = 4;
constexpr int vecs_for(int) { return 2; }
constexpr int kMaxQuantisedRows = 2;

struct BiasedBytes {
  static constexpr int kBias = 128;
  FL_INLINE IVec dot(IVec acc, IVec w, IVec x) { return dot_bytes(acc, w, x); }
};

}  // namespace
}  // namespace firstlight::generic

#include "device/cpu/gemm_pairs.inc"

// After the loops it calls.
#include "device/cpu/gemm_kernels.inc"
