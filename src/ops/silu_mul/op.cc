#include "ops/silu_mul/op.h"

#include "ops/elementwise_contract.h"

namespace firstlight {
const OpContract& silu_mul_contract() {
  static const OpContract contract{
      .name = "silu_mul",
      .equation = "y = gate sigmoid(gate) up",
      .source = "Shazeer 2020 (SwiGLU)",
      .inputs = {{.name = "gate"}, {.name = "up"}},
      .attributes = {},
      .outputs = {"y"},
      .shard = ShardRule::kRows,
      .infer = infer_elementwise,
      .cost = elementwise_cost<8>,
  };
  return contract;
}

}  // namespace firstlight
