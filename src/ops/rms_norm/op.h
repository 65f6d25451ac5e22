// y = x * rsqrt(mean(x^2) + eps) * w, per row.
#pragma once

#include <memory>

#include "ops/contract.h"
#include "ops/kernel.h"

namespace firstlight {

const OpContract& rms_norm_contract();
Result<std::unique_ptr<Kernel>> make_rms_norm_cpu(const KernelContext& context);

}  // namespace firstlight
