#include "ops/moe_route/op.h"

namespace firstlight {
namespace {

Result<std::vector<ValueType>> infer(const NodeSpec& node) {
  const std::int64_t experts = node.input("logits").width();
  if (const ValueType& logits = node.input("logits");
      logits.dtype != DType::kF32 || logits.rows != Rows::kTokens) {
    return contract_error(node, "`logits` must be f32 with a row a token, it is " + type_text(logits));
  }
  const std::int64_t k = node.integer("topk");
  const std::int64_t groups = node.integer("groups");
  const std::int64_t kept = node.integer("topk_groups");
  if (node.has("bias") && node.input("bias").width() != experts) {
    return contract_error(node, "the bias has " + std::to_string(node.input("bias").width()) +
                                    " entries for " + std::to_string(experts) + " experts");
  }
  if (groups < 1 || experts % groups != 0) {
    return contract_error(
        node, std::to_string(experts) + " experts do not divide into " + std::to_string(groups) + " groups");
  }
  if (kept < 1 || kept > groups) {
    return contract_error(node, "attribute `topk_groups` is " + std::to_string(kept) + " of " +
                                    std::to_string(groups) + " groups");
  }
  if (k < 1 || k > experts / groups * kept) {
    return contract_error(node, "attribute `topk` is " + std::to_string(k) + ", only " +
                                    std::to_string(experts / groups * kept) + " experts can be chosen");
  }
  if (const std::string& score = node.text("score"); score != "sigmoid" && score != "softmax") {
    return contract_error(node,
                          "attribute `score` must be \"sigmoid\" or \"softmax\", got \"" + score + "\"");
  }
  if (groups > 1 && experts / groups < 2) {
    return contract_error(node, "a group needs two experts (its score is the sum of its two best)");
  }
  return std::vector<ValueType>{{.dtype = DType::kI32, .rows = Rows::kTokens, .shape = {k}},
                                {.dtype = DType::kF32, .rows = Rows::kTokens, .shape = {k}}};
}

Cost cost(const NodeSpec& node, const StepShape& step) {
  return {.flops = 8 * static_cast<double>(node.input("logits").width() * step.tokens)};
}

}  // namespace

const OpContract& moe_route_contract() {
  static const OpContract contract{
      .name = "moe_route",
      .equation = "s = sigmoid or softmax of logits; E = top-k of s + bias; w = scale * s[E] (/ sum s[E])",
      .source = "spec kimi 3.5; DeepSeek-V3, arXiv 2412.19437, 2.1.2; Mixtral, arXiv 2401.04088, 2.1",
      .inputs = {{.name = "logits"}, {.name = "bias", .kind = InputSlot::Kind::kWeight, .optional = true}},
      .attributes = {{"topk", AttributeType::kInt, "experts a token"},
                     {"groups", AttributeType::kInt, "expert groups", Attribute{std::int64_t{1}}},
                     {"topk_groups", AttributeType::kInt, "groups kept", Attribute{std::int64_t{1}}},
                     {"renormalize", AttributeType::kBool, "divide the weights by their sum"},
                     {"scale", AttributeType::kFloat, "factor of the weights"},
                     {"score", AttributeType::kText, "\"sigmoid\" or \"softmax\" (over all experts)",
                      Attribute{std::string("sigmoid")}}},
      .outputs = {"experts", "weights"},
      .shard = ShardRule::kReplicate,
      .infer = infer,
      .cost = cost,
  };
  return contract;
}

}  // namespace firstlight
