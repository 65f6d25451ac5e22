#include "ops/moe_experts/op.h"

#include <cmath>

namespace firstlight {
namespace {

Result<std::vector<ValueType>> infer(const NodeSpec& node) {
  const ValueType& x = node.input("x");
  const auto& gate = node.inputs("gate");
  const auto& up = node.inputs("up");
  const auto& down = node.inputs("down");
  const ValueType& experts = node.input("experts");
  const ValueType& weights = node.input("weights");
  if (x.dtype != DType::kF32) return contract_error(node, "`x` must be f32 rows, it is " + type_text(x));
  if (experts.dtype != DType::kI32 || weights.dtype != DType::kF32 || experts.shape != weights.shape ||
      experts.rows != x.rows || weights.rows != x.rows) {
    return contract_error(
        node, "`experts` is " + type_text(experts) + ", `weights` is " + type_text(weights) +
                  ", they must be i32 and f32 of one shape with the rows of `x`, " + type_text(x));
  }
  if (gate.size() != up.size() || gate.size() != down.size()) {
    return contract_error(node, "`gate`, `up` and `down` must list one matrix an expert");
  }
  for (std::size_t e = 0; e < gate.size(); ++e) {
    const bool fits = gate[e].shape.size() == 2 && gate[e].shape[1] == x.width() && up[e] == gate[e] &&
                      gate[e] == gate[0] && down[e] == down[0] && down[e].shape.size() == 2 &&
                      down[e].shape[0] == x.width() && down[e].shape[1] == gate[e].shape[0];
    if (!fits) {
      return contract_error(node, "expert " + std::to_string(e) + " has shapes " + shape_text(gate[e].shape) +
                                      ", " + shape_text(up[e].shape) + ", " + shape_text(down[e].shape) +
                                      " for `x` of width " + std::to_string(x.width()));
    }
  }
  const std::string& activation = node.text("activation");
  if (activation != "silu" && activation != "situ") {
    return contract_error(node,
                          "attribute `activation` must be \"silu\" or \"situ\", got \"" + activation + "\"");
  }
  // See situ_mul.
  const auto beta = static_cast<float>(node.real("beta"));
  const auto linear_beta = static_cast<float>(node.real("linear_beta"));
  if (activation == "situ" && (!(beta > 0) || std::isinf(beta))) {
    return contract_error(node, "attribute `beta` must be positive with activation \"situ\", it is " +
                                    attribute_text(node.attribute("beta")));
  }
  if (node.real("linear_beta") != 0 && (!(linear_beta > 0) || std::isinf(linear_beta))) {
    return contract_error(node, "attribute `linear_beta` must be positive or 0 (unlimited), it is " +
                                    attribute_text(node.attribute("linear_beta")));
  }
  return std::vector<ValueType>{x};
}

/// Expected number of distinct experts that `tokens` tokens touch when they choose k of E at random.
double touched(double experts, double k, double tokens) {
  double untouched = 1;
  for (double t = 0; t < tokens && untouched > 1e-9; ++t) untouched *= 1 - k / experts;
  return experts * (1 - untouched);
}

Cost cost(const NodeSpec& node, const StepShape& step) {
  const auto k = static_cast<double>(node.input("experts").width());
  const auto experts = static_cast<double>(node.inputs("gate").size());
  const auto elements = 3 * static_cast<double>(node.input("gate").width());
  const auto tokens = static_cast<double>(step.tokens);
  return {.flops = 2 * elements * k * tokens, .weight_bytes = 2 * elements * touched(experts, k, tokens)};
}

}  // namespace

const OpContract& moe_experts_contract() {
  static const OpContract contract{
      .name = "moe_experts",
      .equation = "y = sum_e w_e W2_e (act(W1_e x, W3_e x)), e ascending over the chosen experts",
      .source = "spec kimi 3.5",
      .inputs = {{.name = "x"},
                 {.name = "experts"},
                 {.name = "weights"},
                 {.name = "gate", .kind = InputSlot::Kind::kWeight, .variadic = true},
                 {.name = "up", .kind = InputSlot::Kind::kWeight, .variadic = true},
                 {.name = "down", .kind = InputSlot::Kind::kWeight, .variadic = true}},
      .attributes = {{"activation", AttributeType::kText, "\"silu\" or \"situ\""},
                     {"beta", AttributeType::kFloat, "see situ_mul", Attribute{0.0}},
                     {"linear_beta", AttributeType::kFloat, "see situ_mul", Attribute{0.0}}},
      .outputs = {"y"},
      .shard = ShardRule::kExperts,
      .infer = infer,
      .cost = cost,
  };
  return contract;
}

}  // namespace firstlight
