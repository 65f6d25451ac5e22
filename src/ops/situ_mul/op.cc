#include "ops/situ_mul/op.h"

namespace firstlight {
namespace {

Result<std::vector<ValueType>> infer(const NodeSpec& node) {
  if (!(node.input("gate") == node.input("up"))) {
    return contract_error(
        node, "`gate` is " + type_text(node.input("gate")) + ", `up` is " + type_text(node.input("up")));
  }
  return std::vector<ValueType>{node.input("gate")};
}

Cost cost(const NodeSpec& node, const StepShape& step) {
  return {.flops = 20 * static_cast<double>(node.input("gate").width() * step.tokens)};
}

}  // namespace

const OpContract& situ_mul_contract() {
  static const OpContract contract{
      .name = "situ_mul",
      .equation = "y = beta tanh(gate / beta) sigmoid(gate) linear_beta tanh(up / linear_beta)",
      .source = "spec kimi 3.6",
      .inputs = {{.name = "gate"}, {.name = "up"}},
      .attributes = {{"beta", AttributeType::kFloat, "limit of the gate branch"},
                     {"linear_beta", AttributeType::kFloat, "limit of the up branch; 0: unlimited",
                      Attribute{0.0}}},
      .outputs = {"y"},
      .shard = ShardRule::kRows,
      .infer = infer,
      .cost = cost,
  };
  return contract;
}

}  // namespace firstlight
