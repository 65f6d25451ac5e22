// y = silu(gate) * up (SwiGLU without its projections).
#pragma once

#include <memory>

#include "ops/contract.h"
#include "ops/kernel.h"

namespace firstlight {

const OpContract& silu_mul_contract();
Result<std::unique_ptr<Kernel>> make_silu_mul_cpu(const KernelContext& context);

}  // namespace firstlight
