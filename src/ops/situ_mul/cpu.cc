#include "ops/situ_mul/kernels.h"
#include "ops/situ_mul/op.h"

namespace firstlight {

Result<std::unique_ptr<Kernel>> make_situ_mul_cpu(const KernelContext& context) {
  return std::unique_ptr<Kernel>(std::make_unique<Elementwise>(
      FL_PICK(context.isa, kSituMulKernels).function, context.node.input("gate"),
      std::array{static_cast<float>(context.node.real("beta")),
                 static_cast<float>(context.node.real("linear_beta"))}));
}

}  // namespace firstlight
