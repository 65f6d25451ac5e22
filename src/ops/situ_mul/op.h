// y = beta tanh(gate / beta) sigmoid(gate) * lambda tanh(up / lambda) (SiTU).
#pragma once

#include <memory>

#include "ops/contract.h"
#include "ops/kernel.h"

namespace firstlight {

const OpContract& situ_mul_contract();
Result<std::unique_ptr<Kernel>> make_situ_mul_cpu(const KernelContext& context);

}  // namespace firstlight
