#include "ops/embedding/op.h"

namespace firstlight {
namespace {

Result<std::vector<ValueType>> infer(const NodeSpec& node) {
  // The kernel reads the step's tokens: nothing else will do.
  if (const ValueType& tokens = node.input("tokens"); tokens != ValueType{DType::kI32, Rows::kTokens, {}}) {
    return contract_error(node, "`tokens` must be the step's token ids, it is " + type_text(tokens));
  }
  if (const Shape& shape = node.input("weight").shape; shape.size() != 2) {
    return contract_error(node, "the weight must be [vocab, width], it is " + shape_text(shape));
  }
  return std::vector<ValueType>{
      {.dtype = DType::kF32, .rows = Rows::kTokens, .shape = {node.input("weight").shape[1]}}};
}

Cost cost(const NodeSpec& node, const StepShape& step) {
  return {.weight_bytes = 2 * static_cast<double>(node.input("weight").shape[1] * step.tokens)};
}

}  // namespace

const OpContract& embedding_contract() {
  static const OpContract contract{
      .name = "embedding",
      .equation = "h = E[token]",
      .source = "spec kimi 3.2",
      .inputs = {{.name = "tokens"}, {.name = "weight", .kind = InputSlot::Kind::kWeight}},
      .attributes = {},
      .outputs = {"h"},
      .shard = ShardRule::kColumns,
      .infer = infer,
      .cost = cost,
  };
  return contract;
}

}  // namespace firstlight
