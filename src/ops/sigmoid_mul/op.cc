#include "ops/sigmoid_mul/op.h"

namespace firstlight {
namespace {

Result<std::vector<ValueType>> infer(const NodeSpec& node) {
  if (!(node.input("x") == node.input("gate"))) {
    return contract_error(
        node, "`x` is " + type_text(node.input("x")) + ", `gate` is " + type_text(node.input("gate")));
  }
  return std::vector<ValueType>{node.input("x")};
}

Cost cost(const NodeSpec& node, const StepShape& step) {
  return {.flops = 6 * static_cast<double>(node.input("x").width() * step.tokens)};
}

}  // namespace

const OpContract& sigmoid_mul_contract() {
  static const OpContract contract{
      .name = "sigmoid_mul",
      .equation = "y = x sigmoid(gate)",
      .source = "spec kimi 3.4",
      .inputs = {{.name = "x"}, {.name = "gate"}},
      .attributes = {},
      .outputs = {"y"},
      .shard = ShardRule::kRows,
      .infer = infer,
      .cost = cost,
  };
  return contract;
}

}  // namespace firstlight
