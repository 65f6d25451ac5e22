// Rotary angles: the cosine and sine of position times frequency, once a step for all layers.
#pragma once

#include <memory>

#include "ops/contract.h"
#include "ops/kernel.h"

namespace firstlight {

const OpContract& rope_angles_contract();
Result<std::unique_ptr<Kernel>> make_rope_angles_cpu(const KernelContext& context);

}  // namespace firstlight
