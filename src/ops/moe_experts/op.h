// y = sum over chosen experts of weight * w2(act(w1 u) * w3 u).
#pragma once

#include <memory>

#include "ops/contract.h"
#include "ops/kernel.h"

namespace firstlight {

const OpContract& moe_experts_contract();
Result<std::unique_ptr<Kernel>> make_moe_experts_cpu(const KernelContext& context);

}  // namespace firstlight
