// y = factor x.
#pragma once

#include <memory>

#include "ops/contract.h"
#include "ops/kernel.h"

namespace firstlight {

const OpContract& scale_contract();
Result<std::unique_ptr<Kernel>> make_scale_cpu(const KernelContext& context);

}  // namespace firstlight
