// y = x + b: one bias for all rows.
#pragma once

#include <memory>

#include "ops/contract.h"
#include "ops/kernel.h"

namespace firstlight {

const OpContract& add_bias_contract();
Result<std::unique_ptr<Kernel>> make_add_bias_cpu(const KernelContext& context);

}  // namespace firstlight
