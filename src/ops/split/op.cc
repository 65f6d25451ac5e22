#include "ops/split/op.h"

namespace firstlight {
namespace {

Result<std::vector<ValueType>> infer(const NodeSpec& node) {
  const ValueType& x = node.input("x");
  const std::int64_t at = node.integer("at");
  if (at <= 0 || at >= x.width()) {
    return contract_error(
        node, "attribute `at` is " + std::to_string(at) + ", `x` has width " + std::to_string(x.width()));
  }
  ValueType left = x;
  ValueType right = x;
  left.shape = {at};
  right.shape = {x.width() - at};
  return std::vector<ValueType>{left, right};
}

Cost cost(const NodeSpec& /*node*/, const StepShape& /*step*/) { return {}; }

}  // namespace

const OpContract& split_contract() {
  static const OpContract contract{
      .name = "split",
      .equation = "[left | right] = x, left has `at` columns",
      .source = "spec kimi 3.4 (latent and k_pe)",
      .inputs = {{.name = "x"}},
      .attributes = {{"at", AttributeType::kInt, "columns of the left part"}},
      .outputs = {"left", "right"},
      .shard = ShardRule::kRows,
      .infer = infer,
      .cost = cost,
  };
  return contract;
}

}  // namespace firstlight
