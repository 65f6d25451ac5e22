#include "ops/scale/op.h"

#include <cmath>

#include "ops/elementwise_contract.h"

namespace firstlight {
namespace {

Result<std::vector<ValueType>> infer(const NodeSpec& node) {
  const ValueType& x = node.input("x");
  if (x.dtype != DType::kF32 || x.rows == Rows::kFixed) {
    return contract_error(node, "`x` must be f32 rows, it is " + type_text(x));
  }
  if (!std::isfinite(static_cast<float>(node.real("factor")))) {
    return contract_error(
        node, "attribute `factor` must be finite, it is " + attribute_text(node.attribute("factor")));
  }
  return std::vector<ValueType>{x};
}

}  // namespace

const OpContract& scale_contract() {
  static const OpContract contract{
      .name = "scale",
      .equation = "y = factor x",
      .source = "elementary; Gemma scales its embeddings by sqrt(hidden_size)",
      .inputs = {{.name = "x"}},
      .attributes = {{"factor", AttributeType::kFloat, "rounded to f32"}},
      .outputs = {"y"},
      .shard = ShardRule::kRows,
      .infer = infer,
      .cost = elementwise_cost<1>,
  };
  return contract;
}

}  // namespace firstlight
