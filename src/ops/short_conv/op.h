// y = SiLU(sum_j w[:, j] * x[t - K + 1 + j]), causal and depthwise; the last K - 1 inputs are kept.
#pragma once

#include <memory>

#include "ops/contract.h"
#include "ops/kernel.h"

namespace firstlight {

const OpContract& short_conv_contract();
Result<std::unique_ptr<Kernel>> make_short_conv_cpu(const KernelContext& context);

}  // namespace firstlight
