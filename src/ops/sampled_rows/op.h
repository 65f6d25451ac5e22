// Keeps the rows whose logits are asked for.
#pragma once

#include <memory>

#include "ops/contract.h"
#include "ops/kernel.h"

namespace firstlight {

const OpContract& sampled_rows_contract();
Result<std::unique_ptr<Kernel>> make_sampled_rows_cpu(const KernelContext& context);

}  // namespace firstlight
