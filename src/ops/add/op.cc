#include "ops/add/op.h"

namespace firstlight {
namespace {

Result<std::vector<ValueType>> infer(const NodeSpec& node) {
  const ValueType& a = node.input("a");
  const ValueType& b = node.input("b");
  if (a.dtype != DType::kF32 || !(a == b)) {
    return contract_error(
        node, "`a` is " + type_text(a) + ", `b` is " + type_text(b) + ", both must be the same f32 rows");
  }
  return std::vector<ValueType>{a};
}

Cost cost(const NodeSpec& node, const StepShape& step) {
  return {.flops = 1 * static_cast<double>(node.input("a").width() * step.tokens)};
}

}  // namespace

const OpContract& add_contract() {
  static const OpContract contract{
      .name = "add",
      .equation = "y = a + b",
      .source = "spec kimi 3.2",
      .inputs = {{.name = "a"}, {.name = "b"}},
      .attributes = {},
      .outputs = {"y"},
      .shard = ShardRule::kRows,
      .infer = infer,
      .cost = cost,
  };
  return contract;
}

}  // namespace firstlight
