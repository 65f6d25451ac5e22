#include "ops/sigmoid_scale/op.h"

#include "ops/elementwise_contract.h"

namespace firstlight {
namespace {

Result<std::vector<ValueType>> infer(const NodeSpec& node) {
  const ValueType& x = node.input("x");
  const ValueType& gate = node.input("gate");
  const std::int64_t heads = node.integer("heads");
  if (heads < 1 || heads > x.width() || x.width() % heads != 0) {
    return contract_error(node, "`x` has width " + std::to_string(x.width()) +
                                    ", which `heads` = " + std::to_string(heads) + " does not divide");
  }
  if (x.dtype != DType::kF32 || x.rows == Rows::kFixed || gate.dtype != DType::kF32 || gate.rows != x.rows ||
      gate.width() != heads) {
    return contract_error(node, "`x` is " + type_text(x) + ", `gate` is " + type_text(gate) +
                                    ", expected f32 rows and " + std::to_string(heads) +
                                    " f32 numbers a row, one a head");
  }
  return std::vector<ValueType>{x};
}

}  // namespace

const OpContract& sigmoid_scale_contract() {
  static const OpContract contract{
      .name = "sigmoid_scale",
      .equation = "y = x sigmoid(gate), one gate a head",
      .source =
          "Qwen2-MoE and its successors: the gate of the shared expert; gated attention (arXiv "
          "2505.06708), head-wise",
      .inputs = {{.name = "x"}, {.name = "gate"}},
      .attributes = {{"heads", AttributeType::kInt,
                      "heads of equal width in `x`, one gate each; 1: one a row",
                      Attribute{std::int64_t{1}}}},
      .outputs = {"y"},
      .shard = ShardRule::kRows,
      .infer = infer,
      .cost = elementwise_cost<1>,
  };
  return contract;
}

}  // namespace firstlight
