// Multi-head latent attention: dense, or over a given choice of positions.
#pragma once

#include <memory>

#include "ops/contract.h"
#include "ops/kernel.h"

namespace firstlight {

const OpContract& mla_contract();
/// Cost of rows that are computed in the expanded form (README.md): keys and values of the whole context are
/// expanded once a step.
Cost mla_expanded_cost(const NodeSpec& node, const StepShape& step);
Result<std::unique_ptr<Kernel>> make_mla_cpu(const KernelContext& context);

}  // namespace firstlight
