// y = x * sigmoid(gate).
#pragma once

#include <memory>

#include "ops/contract.h"
#include "ops/kernel.h"

namespace firstlight {

const OpContract& sigmoid_mul_contract();
Result<std::unique_ptr<Kernel>> make_sigmoid_mul_cpu(const KernelContext& context);

}  // namespace firstlight
