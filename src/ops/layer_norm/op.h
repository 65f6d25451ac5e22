// y = (x - mean(x)) / sqrt(var(x) + eps) * w + b, per row; population variance.
#pragma once

#include <memory>

#include "ops/contract.h"
#include "ops/kernel.h"

namespace firstlight {

const OpContract& layer_norm_contract();
Result<std::unique_ptr<Kernel>> make_layer_norm_cpu(const KernelContext& context);

}  // namespace firstlight
