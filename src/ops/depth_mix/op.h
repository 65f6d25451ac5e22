// Attention over depth: a softmax mixture of earlier block sums.
#pragma once

#include <memory>

#include "ops/contract.h"
#include "ops/kernel.h"

namespace firstlight {

const OpContract& depth_mix_contract();
Result<std::unique_ptr<Kernel>> make_depth_mix_cpu(const KernelContext& context);

}  // namespace firstlight
