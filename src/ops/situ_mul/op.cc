#include "ops/situ_mul/op.h"

#include <cmath>

#include "ops/elementwise_contract.h"

namespace firstlight {
namespace {

Result<std::vector<ValueType>> infer(const NodeSpec& node) {
  FL_ASSIGN(const std::vector<ValueType> outputs, infer_elementwise(node));
  // As the f32 that the kernel divides by: 0 would make a NaN of a gate that is 0.
  const auto beta = static_cast<float>(node.real("beta"));
  if (!(beta > 0) || std::isinf(beta)) {
    return contract_error(
        node, "attribute `beta` must be positive, it is " + attribute_text(node.attribute("beta")));
  }
  const auto linear_beta = static_cast<float>(node.real("linear_beta"));
  if (node.real("linear_beta") != 0 && (!(linear_beta > 0) || std::isinf(linear_beta))) {
    return contract_error(node, "attribute `linear_beta` must be positive or 0 (unlimited), it is " +
                                    attribute_text(node.attribute("linear_beta")));
  }
  return outputs;
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
      .cost = elementwise_cost<20>,
  };
  return contract;
}

}  // namespace firstlight
