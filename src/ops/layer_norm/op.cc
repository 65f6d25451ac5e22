#include "ops/layer_norm/op.h"

#include <cmath>

namespace firstlight {
namespace {

Result<std::vector<ValueType>> infer(const NodeSpec& node) {
  const ValueType& x = node.input("x");
  if (x.dtype != DType::kF32 || x.rows == Rows::kFixed || x.width() < 1) {
    return contract_error(node, "`x` must be f32 rows, it is " + type_text(x));
  }
  for (const std::string_view slot : {"weight", "bias"}) {
    if (node.input(slot).width() != x.width()) {
      return contract_error(node, "`x` has width " + std::to_string(x.width()) + ", the " +
                                      std::string(slot) + " has " + std::to_string(node.input(slot).width()));
    }
  }
  // Positive also as the f32 that the kernel adds, or a row of zeros would become NaN.
  if (const double eps = node.real("eps"); !(static_cast<float>(eps) > 0) || !std::isfinite(eps)) {
    return contract_error(node, "`eps` must be positive, it is " + attribute_text(Attribute{eps}));
  }
  return std::vector<ValueType>{x};
}

Cost cost(const NodeSpec& node, const StepShape& step) {
  const auto width = static_cast<double>(node.input("x").width());
  return {.flops = 7 * width * static_cast<double>(step.tokens), .weight_bytes = 8 * width};
}

}  // namespace

const OpContract& layer_norm_contract() {
  static const OpContract contract{
      .name = "layer_norm",
      .equation = "y = (x - mean(x)) / sqrt(var(x) + eps) * w + b",
      .source = "Ba, Kiros, Hinton 2016; spec dsa 2 (indexer keys)",
      .inputs = {{.name = "x"},
                 {.name = "weight", .kind = InputSlot::Kind::kWeight},
                 {.name = "bias", .kind = InputSlot::Kind::kWeight}},
      .attributes = {{"eps", AttributeType::kFloat, "added to the variance"}},
      .outputs = {"y"},
      .shard = ShardRule::kRows,
      .infer = infer,
      .cost = cost,
  };
  return contract;
}

}  // namespace firstlight
