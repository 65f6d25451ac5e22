#include "ops/gated_norm/op.h"

#include <cmath>

namespace firstlight {
namespace {

Result<std::vector<ValueType>> infer(const NodeSpec& node) {
  const ValueType& x = node.input("x");
  const ValueType& gate = node.input("gate");
  const std::int64_t heads = node.integer("heads");
  const std::int64_t width = x.width();
  if (x.dtype != DType::kF32 || x.rows == Rows::kFixed) {
    return contract_error(node, "`x` must be f32 rows, it is " + type_text(x));
  }
  if (gate.dtype != x.dtype || gate.rows != x.rows || gate.width() != width) {
    return contract_error(node, "`gate` is " + type_text(gate) + ", `x` is " + type_text(x));
  }
  if (heads < 1 || width < heads || width % heads != 0) {
    return contract_error(node, "`x` has width " + std::to_string(width) +
                                    ", which `heads` = " + std::to_string(heads) + " does not divide");
  }
  if (node.input("weight").width() != width / heads) {
    return contract_error(node, "a head has width " + std::to_string(width / heads) + ", the weight has " +
                                    std::to_string(node.input("weight").width()));
  }
  // Positive also as the f32 that the kernel adds, or a row of zeros would become NaN.
  if (const double eps = node.real("eps"); !(static_cast<float>(eps) > 0) || !std::isfinite(eps)) {
    return contract_error(node, "`eps` must be positive, it is " + attribute_text(Attribute{eps}));
  }
  const std::string& activation = node.text("activation");
  if (activation != "sigmoid" && activation != "silu") {
    return contract_error(node, "`activation` is \"" + activation + "\", known are \"sigmoid\" and \"silu\"");
  }
  return std::vector<ValueType>{x};
}

Cost cost(const NodeSpec& node, const StepShape& step) {
  const auto width = static_cast<double>(node.input("x").width());
  return {.flops = 8 * width * static_cast<double>(step.tokens),
          .weight_bytes = 4 * static_cast<double>(node.input("weight").width())};
}

}  // namespace

const OpContract& gated_norm_contract() {
  static const OpContract contract{
      .name = "gated_norm",
      .equation = "y = x * rsqrt(mean_d(x^2) + eps) * w * activation(gate), per head",
      .source = "Kimi Linear (arXiv 2510.26692), spec kimi 3.3 step 10; Gated DeltaNet (arXiv 2412.06464)",
      .inputs = {{.name = "x"}, {.name = "gate"}, {.name = "weight", .kind = InputSlot::Kind::kWeight}},
      .attributes = {{"heads", AttributeType::kInt, "heads of equal width in `x` and `gate`"},
                     {"eps", AttributeType::kFloat, "added to the mean of squares"},
                     {"activation", AttributeType::kText, "of the gate: \"sigmoid\" or \"silu\"",
                      Attribute{std::string("sigmoid")}}},
      .outputs = {"y"},
      .shard = ShardRule::kHeads,
      .infer = infer,
      .cost = cost,
  };
  return contract;
}

}  // namespace firstlight
