#include "ops/sigmoid_scale/op.h"

#include "ops/elementwise_contract.h"

namespace firstlight {
namespace {

Result<std::vector<ValueType>> infer(const NodeSpec& node) {
  const ValueType& x = node.input("x");
  const ValueType& gate = node.input("gate");
  if (x.dtype != DType::kF32 || x.rows == Rows::kFixed || gate.dtype != DType::kF32 || gate.rows != x.rows ||
      gate.width() != 1) {
    return contract_error(node, "`x` is " + type_text(x) + ", `gate` is " + type_text(gate) +
                                    ", expected f32 rows and one f32 number a row");
  }
  return std::vector<ValueType>{x};
}

}  // namespace

const OpContract& sigmoid_scale_contract() {
  static const OpContract contract{
      .name = "sigmoid_scale",
      .equation = "y = x sigmoid(gate), one gate a row",
      .source = "Qwen2-MoE and its successors: the gate of the shared expert",
      .inputs = {{.name = "x"}, {.name = "gate"}},
      .attributes = {},
      .outputs = {"y"},
      .shard = ShardRule::kRows,
      .infer = infer,
      .cost = elementwise_cost<1>,
  };
  return contract;
}

}  // namespace firstlight
