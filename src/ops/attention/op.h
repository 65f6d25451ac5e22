// Grouped-query attention over a paged cache: dense or in a sliding window, with optional sinks and softcap.
#pragma once

#include <memory>

#include "ops/contract.h"
#include "ops/kernel.h"

namespace firstlight {

const OpContract& attention_contract();
Result<std::unique_ptr<Kernel>> make_attention_cpu(const KernelContext& context);

}  // namespace firstlight
