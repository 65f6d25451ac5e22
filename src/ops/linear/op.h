// y = x W^T for each weight W [N, K].
#pragma once

#include <memory>

#include "ops/contract.h"
#include "ops/kernel.h"

namespace firstlight {

const OpContract& linear_contract();
Result<std::unique_ptr<Kernel>> make_linear_cpu(const KernelContext& context);

}  // namespace firstlight
