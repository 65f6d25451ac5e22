// y = gelu(gate) * up, gelu in its tanh form (GeGLU without its projections).
#pragma once

#include <memory>

#include "ops/contract.h"
#include "ops/kernel.h"

namespace firstlight {

const OpContract& gelu_mul_contract();
Result<std::unique_ptr<Kernel>> make_gelu_mul_cpu(const KernelContext& context);

}  // namespace firstlight
