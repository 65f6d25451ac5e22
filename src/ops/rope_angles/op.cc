#include "ops/rope_angles/op.h"

#include <cmath>

namespace firstlight {
namespace {

constexpr std::size_t kMostFrequencies = 1U << 15U;

Result<std::vector<ValueType>> infer(const NodeSpec& node) {
  const ValueType& tokens = node.input("tokens");
  if (tokens.dtype != DType::kI32 || tokens.rows != Rows::kTokens || !tokens.shape.empty()) {
    return contract_error(node, "`tokens` must be the step's tokens, it is " + type_text(tokens));
  }
  const std::vector<double>& frequencies = node.reals("frequencies");
  if (frequencies.empty() || frequencies.size() > kMostFrequencies) {
    return contract_error(node, "attribute `frequencies` has " + std::to_string(frequencies.size()) +
                                    " entries, expected 1 to " + std::to_string(kMostFrequencies));
  }
  for (const double f : frequencies) {
    // Radians a token. The bound keeps position times frequency where the angle's reduction is exact.
    if (!(std::abs(f) <= 64)) {
      return contract_error(node, "attribute `frequencies` holds " + attribute_text(Attribute{f}) +
                                      ", expected radians a token within 64");
    }
  }
  if (const double scale = node.real("scale"); !std::isfinite(static_cast<float>(scale))) {
    return contract_error(node,
                          "attribute `scale` must be finite, it is " + attribute_text(Attribute{scale}));
  }
  return std::vector<ValueType>{
      {DType::kF32, Rows::kTokens, {2 * static_cast<std::int64_t>(frequencies.size())}}};
}

Cost cost(const NodeSpec& node, const StepShape& step) {
  return {.flops =
              60 * static_cast<double>(node.reals("frequencies").size()) * static_cast<double>(step.tokens)};
}

}  // namespace

const OpContract& rope_angles_contract() {
  static const OpContract contract{
      .name = "rope_angles",
      .equation = "y = scale [cos(p f_i) | sin(p f_i)], p the token's position",
      .source = "RoFormer, arXiv 2104.09864, section 3.4",
      .inputs = {{.name = "tokens"}},
      .attributes = {{"frequencies", AttributeType::kFloats, "radians a token, one a rotated pair"},
                     {"scale", AttributeType::kFloat, "factor of cosine and sine (YaRN's attention factor)",
                      Attribute{1.0}}},
      .outputs = {"angles"},
      .shard = ShardRule::kReplicate,
      .infer = infer,
      .cost = cost,
  };
  return contract;
}

}  // namespace firstlight
