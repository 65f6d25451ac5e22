// Cuts each row of x into consecutive pieces.
#pragma once

#include <memory>

#include "ops/contract.h"
#include "ops/kernel.h"

namespace firstlight {

const OpContract& split_contract();
Result<std::unique_ptr<Kernel>> make_split_cpu(const KernelContext& context);

}  // namespace firstlight
