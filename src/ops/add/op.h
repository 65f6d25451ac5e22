// y = a + b.
#pragma once

#include <memory>

#include "ops/contract.h"
#include "ops/kernel.h"

namespace firstlight {

const OpContract& add_contract();
Result<std::unique_ptr<Kernel>> make_add_cpu(const KernelContext& context);

}  // namespace firstlight
