// h = E[token], one row a token.
#pragma once

#include <memory>

#include "ops/contract.h"
#include "ops/kernel.h"

namespace firstlight {

const OpContract& embedding_contract();
Result<std::unique_ptr<Kernel>> make_embedding_cpu(const KernelContext& context);

}  // namespace firstlight
