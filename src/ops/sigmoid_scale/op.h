// y = x sigmoid(gate): one gate for a whole row, or for each head of it.
#pragma once

#include <memory>

#include "ops/contract.h"
#include "ops/kernel.h"

namespace firstlight {

const OpContract& sigmoid_scale_contract();
Result<std::unique_ptr<Kernel>> make_sigmoid_scale_cpu(const KernelContext& context);

}  // namespace firstlight
