#include "ops/add_bias/op.h"

#include "ops/elementwise_contract.h"

namespace firstlight {
namespace {

Result<std::vector<ValueType>> infer(const NodeSpec& node) {
  const ValueType& x = node.input("x");
  if (x.dtype != DType::kF32 || x.rows == Rows::kFixed) {
    return contract_error(node, "`x` must be f32 rows, it is " + type_text(x));
  }
  if (node.input("bias").width() != x.width()) {
    return contract_error(node, "`x` has width " + std::to_string(x.width()) + ", the bias has " +
                                    std::to_string(node.input("bias").width()));
  }
  return std::vector<ValueType>{x};
}

Cost cost(const NodeSpec& node, const StepShape& step) {
  const auto width = static_cast<double>(node.input("x").width());
  return {.flops = width * static_cast<double>(step.rows(node.input("x").rows)), .weight_bytes = 4 * width};
}

}  // namespace

const OpContract& add_bias_contract() {
  static const OpContract contract{
      .name = "add_bias",
      .equation = "y = x + b",
      .source = "elementary",
      .inputs = {{.name = "x"}, {.name = "bias", .kind = InputSlot::Kind::kWeight}},
      .attributes = {},
      .outputs = {"y"},
      .shard = ShardRule::kColumns,
      .infer = infer,
      .cost = cost,
  };
  return contract;
}

}  // namespace firstlight
