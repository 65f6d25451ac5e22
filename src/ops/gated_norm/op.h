// y = x * rsqrt(mean_d(x^2) + eps) * w * activation(gate), per head of width d.
#pragma once

#include <memory>

#include "ops/contract.h"
#include "ops/kernel.h"

namespace firstlight {

const OpContract& gated_norm_contract();
Result<std::unique_ptr<Kernel>> make_gated_norm_cpu(const KernelContext& context);

}  // namespace firstlight
