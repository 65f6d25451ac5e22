#include "ops/sigmoid_mul/op.h"

#include "ops/elementwise_contract.h"

namespace firstlight {
const OpContract& sigmoid_mul_contract() {
  static const OpContract contract{
      .name = "sigmoid_mul",
      .equation = "y = x sigmoid(gate)",
      .source = "spec kimi 3.4",
      .inputs = {{.name = "x"}, {.name = "gate"}},
      .attributes = {},
      .outputs = {"y"},
      .shard = ShardRule::kRows,
      .infer = infer_elementwise,
      .cost = elementwise_cost<6>,
  };
  return contract;
}

}  // namespace firstlight
