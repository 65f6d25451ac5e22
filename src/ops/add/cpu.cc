#include "ops/add/kernels.h"
#include "ops/add/op.h"

namespace firstlight {

Result<std::unique_ptr<Kernel>> make_add_cpu(const KernelContext& context) {
  return std::unique_ptr<Kernel>(
      std::make_unique<Elementwise>(FL_PICK(context.isa, kAddKernels).function, context.node.input("a")));
}

}  // namespace firstlight
