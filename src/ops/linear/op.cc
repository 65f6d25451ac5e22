#include "ops/linear/op.h"

namespace firstlight {
namespace {

Result<std::vector<ValueType>> infer(const NodeSpec& node) {
  const ValueType& x = node.input("x");
  if (x.dtype != DType::kF32) return contract_error(node, "`x` must be f32 rows, it is " + type_text(x));
  const std::string& precision = node.text("precision");
  if (precision != "model" && precision != "f32") {
    return contract_error(node,
                          "attribute `precision` must be \"model\" or \"f32\", got \"" + precision + "\"");
  }
  std::vector<ValueType> outputs;
  for (const ValueType& w : node.inputs("weight")) {
    if (w.shape.size() != 2 || w.shape[1] != x.width()) {
      return contract_error(
          node, "`x` has width " + std::to_string(x.width()) + ", a weight has shape " + shape_text(w.shape));
    }
    outputs.push_back({.dtype = DType::kF32, .rows = x.rows, .shape = {w.shape[0]}});
  }
  return outputs;
}

Cost cost(const NodeSpec& node, const StepShape& step) {
  const auto rows = static_cast<double>(step.rows(node.input("x").rows));
  Cost cost;
  if (rows == 0) return cost;  // no logits are asked for: nothing is read either
  for (const ValueType& w : node.inputs("weight")) {
    cost.flops += 2 * rows * static_cast<double>(w.width());
    cost.weight_bytes += 2 * static_cast<double>(w.width());
  }
  return cost;
}

}  // namespace

const OpContract& linear_contract() {
  static const OpContract contract{
      .name = "linear",
      .equation = "y = x W^T",
      .source = "spec kimi: notation",
      .inputs = {{.name = "x"}, {.name = "weight", .kind = InputSlot::Kind::kWeight, .variadic = true}},
      .attributes = {{"precision", AttributeType::kText,
                      "\"model\": the run's arithmetic; \"f32\": f32 products in every mode (routers)",
                      Attribute{std::string("model")}}},
      .outputs = {"y..."},
      .shard = ShardRule::kColumns,
      .infer = infer,
      .cost = cost,
  };
  return contract;
}

}  // namespace firstlight
