// Chooses k experts a token and their weights.
#pragma once

#include <memory>

#include "ops/contract.h"
#include "ops/kernel.h"

namespace firstlight {

const OpContract& moe_route_contract();
Result<std::unique_ptr<Kernel>> make_moe_route_cpu(const KernelContext& context);

}  // namespace firstlight
