// Rotary position embedding: rotates pairs of channels of each head by given angles.
#pragma once

#include <memory>

#include "ops/contract.h"
#include "ops/kernel.h"

namespace firstlight {

const OpContract& rope_contract();
Result<std::unique_ptr<Kernel>> make_rope_cpu(const KernelContext& context);

}  // namespace firstlight
