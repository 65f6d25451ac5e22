#include "ops/gelu_mul/kernels.h"
#include "ops/gelu_mul/op.h"

namespace firstlight {

Result<std::unique_ptr<Kernel>> make_gelu_mul_cpu(const KernelContext& context) {
  return std::unique_ptr<Kernel>(std::make_unique<Elementwise>(FL_PICK(context.isa, kGeluMulKernels).function,
                                                               context.node.input("gate")));
}

}  // namespace firstlight
