#include "ops/sigmoid_mul/kernels.h"
#include "ops/sigmoid_mul/op.h"

namespace firstlight {

Result<std::unique_ptr<Kernel>> make_sigmoid_mul_cpu(const KernelContext& context) {
  return std::unique_ptr<Kernel>(std::make_unique<Elementwise>(
      FL_PICK(context.isa, kSigmoidMulKernels).function, context.node.input("x")));
}

}  // namespace firstlight
