#include "ops/rms_norm/op.h"

#include <cmath>

namespace firstlight {
namespace {

Result<std::vector<ValueType>> infer(const NodeSpec& node) {
  const ValueType& x = node.input("x");
  if (x.dtype != DType::kF32 || x.rows == Rows::kFixed || x.width() < 1) {
    return contract_error(node, "`x` must be f32 rows, it is " + type_text(x));
  }
  const std::int64_t heads = node.integer("heads");
  const std::int64_t width = node.input("weight").width();
  if (heads < 1 || heads > x.width() || x.width() % heads != 0 || width != x.width() / heads) {
    return contract_error(node, "`x` has width " + std::to_string(x.width()) + ", the weight has " +
                                    std::to_string(width) +
                                    (heads == 1 ? "" : " for each of " + std::to_string(heads) + " heads"));
  }
  // Positive also as the f32 that the kernel adds, or a row of zeros would become NaN.
  if (const double eps = node.real("eps"); !(static_cast<float>(eps) > 0) || !std::isfinite(eps)) {
    return contract_error(node, "`eps` must be positive, it is " + attribute_text(Attribute{eps}));
  }
  return std::vector<ValueType>{x};
}

Cost cost(const NodeSpec& node, const StepShape& step) {
  const auto width = static_cast<double>(node.input("x").width());
  return {.flops = 4 * width * static_cast<double>(step.tokens), .weight_bytes = 4 * width};
}

}  // namespace

const OpContract& rms_norm_contract() {
  static const OpContract contract{
      .name = "rms_norm",
      .equation = "y = x * rsqrt(mean(x^2) + eps) * (w + weight_offset), mean over a head",
      .source = "Zhang, Sennrich 2019; spec kimi 3.1",
      .inputs = {{.name = "x"}, {.name = "weight", .kind = InputSlot::Kind::kWeight}},
      .attributes = {{"eps", AttributeType::kFloat, "added to the mean of squares"},
                     {"heads", AttributeType::kInt, "heads normed apart, all with the same weight",
                      Attribute{std::int64_t{1}}},
                     {"weight_offset", AttributeType::kFloat,
                      "added to the stored weight (1: it is stored as w - 1)", Attribute{0.0}}},
      .outputs = {"y"},
      .shard = ShardRule::kRows,
      .infer = infer,
      .cost = cost,
  };
  return contract;
}

}  // namespace firstlight
