#include "ops/sigmoid_mul/op.h"

namespace firstlight {
namespace {

Result<std::vector<ValueType>> infer(const NodeSpec& node) {
  const ValueType& x = node.input("x");
  const ValueType& gate = node.input("gate");
  if (x.dtype != DType::kF32 || !(x == gate)) {
    return contract_error(node, "`x` is " + type_text(x) + ", `gate` is " + type_text(gate) +
                                    ", both must be the same f32 rows");
  }
  return std::vector<ValueType>{x};
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
