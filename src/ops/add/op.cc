#include "ops/add/op.h"

#include "ops/elementwise_contract.h"

namespace firstlight {
const OpContract& add_contract() {
  static const OpContract contract{
      .name = "add",
      .equation = "y = a + b",
      .source = "spec kimi 3.2",
      .inputs = {{.name = "a"}, {.name = "b"}},
      .attributes = {},
      .outputs = {"y"},
      .shard = ShardRule::kRows,
      .infer = infer_elementwise,
      .cost = elementwise_cost<1>,
  };
  return contract;
}

}  // namespace firstlight
