// The gated delta rule, with one decay per key channel (Kimi Delta Attention) or per head (Gated DeltaNet);
// normalisation of q and k, gate and beta are part of the operator, because its fixed order of operations is.
#pragma once

#include <memory>

#include "ops/contract.h"
#include "ops/kernel.h"

namespace firstlight {

const OpContract& kda_contract();
/// Heads of q and k; each serves as many consecutive heads of v, f and beta.
std::int64_t kda_key_heads(const NodeSpec& node);
/// Whether f has one entry a head, else one a key channel.
bool kda_head_decay(const NodeSpec& node);
Result<std::unique_ptr<Kernel>> make_kda_cpu(const KernelContext& context);

}  // namespace firstlight
