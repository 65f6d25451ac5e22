#include "ops/moe_experts/op.h"

#include <cmath>

namespace firstlight {
namespace {

Status check_activation(const NodeSpec& node);

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
  const std::size_t biases = node.inputs("gate_bias").size();
  if (biases != node.inputs("up_bias").size() || biases != node.inputs("down_bias").size() ||
      (biases != 0 && biases != gate.size())) {
    return contract_error(
        node, "`gate_bias`, `up_bias` and `down_bias` must all list one vector an expert, or none");
  }
  for (std::size_t e = 0; e < biases; ++e) {
    const ValueType& g = node.inputs("gate_bias")[e];
    const ValueType& u = node.inputs("up_bias")[e];
    const ValueType& d = node.inputs("down_bias")[e];
    if (g.width() != gate[0].shape[0] || u.width() != gate[0].shape[0] || d.width() != x.width()) {
      return contract_error(node, "the biases of expert " + std::to_string(e) + " have shapes " +
                                      shape_text(g.shape) + ", " + shape_text(u.shape) + ", " +
                                      shape_text(d.shape));
    }
  }
  FL_TRY(check_activation(node));
  return std::vector<ValueType>{x};
}

Status check_activation(const NodeSpec& node) {
  const std::string& activation = node.text("activation");
  if (activation != "silu" && activation != "situ" && activation != "clamped_swiglu") {
    return contract_error(
        node, "attribute `activation` must be \"silu\", \"situ\" or \"clamped_swiglu\", got \"" + activation +
                  "\"");
  }
  if (const auto limit = static_cast<float>(node.real("limit"));
      activation == "clamped_swiglu" && (!(limit > 0) || std::isinf(limit))) {
    return contract_error(node,
                          "attribute `limit` must be positive with activation \"clamped_swiglu\", it is " +
                              attribute_text(node.attribute("limit")));
  }
  if (!std::isfinite(static_cast<float>(node.real("alpha")))) {
    return contract_error(
        node, "attribute `alpha` must be finite, it is " + attribute_text(node.attribute("alpha")));
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
  return {};
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
      .equation =
          "y = sum_e w_e (W2_e act(W1_e x + b1_e, W3_e x + b3_e) + b2_e), e ascending over the chosen "
          "experts",
      .source = "spec kimi 3.5; gpt-oss model card (clamped_swiglu, biases)",
      .inputs = {{.name = "x"},
                 {.name = "experts"},
                 {.name = "weights"},
                 {.name = "gate", .kind = InputSlot::Kind::kWeight, .variadic = true},
                 {.name = "up", .kind = InputSlot::Kind::kWeight, .variadic = true},
                 {.name = "down", .kind = InputSlot::Kind::kWeight, .variadic = true},
                 {.name = "gate_bias", .kind = InputSlot::Kind::kWeight, .optional = true, .variadic = true},
                 {.name = "up_bias", .kind = InputSlot::Kind::kWeight, .optional = true, .variadic = true},
                 {.name = "down_bias", .kind = InputSlot::Kind::kWeight, .optional = true, .variadic = true}},
      .attributes = {{"activation", AttributeType::kText, "\"silu\", \"situ\" or \"clamped_swiglu\""},
                     {"beta", AttributeType::kFloat, "see situ_mul", Attribute{0.0}},
                     {"linear_beta", AttributeType::kFloat, "see situ_mul", Attribute{0.0}},
                     {"limit", AttributeType::kFloat, "of clamped_swiglu: bound of gate and of |up|",
                      Attribute{0.0}},
                     {"alpha", AttributeType::kFloat, "of clamped_swiglu: factor inside the sigmoid",
                      Attribute{0.0}}},
      .outputs = {"y"},
      .shard = ShardRule::kExperts,
      .infer = infer,
      .cost = cost,
  };
  return contract;
}

}  // namespace firstlight
