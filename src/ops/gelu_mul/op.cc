#include "ops/gelu_mul/op.h"

#include "ops/elementwise_contract.h"

namespace firstlight {

const OpContract& gelu_mul_contract() {
  static const OpContract contract{
      .name = "gelu_mul",
      .equation = "y = gate sigmoid(2 sqrt(2/pi) (gate + 0.044715 gate^3)) up",
      .source = "Hendrycks, Gimpel 2016, arXiv 1606.08415, section 2 (tanh form); Shazeer 2020 (GeGLU)",
      .inputs = {{.name = "gate"}, {.name = "up"}},
      .attributes = {},
      .outputs = {"y"},
      .shard = ShardRule::kRows,
      .infer = infer_elementwise,
      .cost = elementwise_cost<12>,
  };
  return contract;
}

}  // namespace firstlight
