// Multi-head latent attention, absorbed: dense, or over a given choice of positions.
#pragma once

#include <memory>

#include "ops/contract.h"
#include "ops/kernel.h"

namespace firstlight {

const OpContract& mla_contract();
Result<std::unique_ptr<Kernel>> make_mla_cpu(const KernelContext& context);

}  // namespace firstlight
