#include "ops/silu_mul/kernels.h"
#include "ops/silu_mul/op.h"

namespace firstlight {

Result<std::unique_ptr<Kernel>> make_silu_mul_cpu(const KernelContext& context) {
  return std::unique_ptr<Kernel>(std::make_unique<Elementwise>(FL_PICK(context.isa, kSiluMulKernels).function,
                                                               context.node.input("gate")));
}

}  // namespace firstlight
