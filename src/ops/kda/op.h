// Kimi Delta Attention: a gated delta rule with one decay per key channel; normalisation of q and k, gate
// and beta are part of the operator, because its fixed order of operations is.
#pragma once

#include <memory>

#include "ops/contract.h"
#include "ops/kernel.h"

namespace firstlight {

const OpContract& kda_contract();
Result<std::unique_ptr<Kernel>> make_kda_cpu(const KernelContext& context);

}  // namespace firstlight
