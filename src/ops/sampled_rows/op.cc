#include "ops/sampled_rows/op.h"

namespace firstlight {
namespace {

Result<std::vector<ValueType>> infer(const NodeSpec& node) {
  ValueType y = node.input("x");
  if (y.rows != Rows::kTokens)
    return contract_error(node, "`x` must have a row a token, it is " + type_text(y));
  y.rows = Rows::kSampled;
  return std::vector<ValueType>{y};
}

Cost cost(const NodeSpec& /*node*/, const StepShape& /*step*/) { return {}; }

}  // namespace

const OpContract& sampled_rows_contract() {
  static const OpContract contract{
      .name = "sampled_rows",
      .equation = "y[r] = x[row(r)], the rows whose logits are asked for",
      .source = "design 4",
      .inputs = {{.name = "x"}},
      .attributes = {},
      .outputs = {"y"},
      .shard = ShardRule::kRows,
      .infer = infer,
      .cost = cost,
  };
  return contract;
}

}  // namespace firstlight
