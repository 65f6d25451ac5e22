#include "ops/depth_mix/op.h"

#include <cmath>

namespace firstlight {
namespace {

Result<std::vector<ValueType>> infer(const NodeSpec& node) {
  const auto& sources = node.inputs("sources");
  if (sources[0].dtype != DType::kF32) {
    return contract_error(node, "`sources` must be f32 rows, the first is " + type_text(sources[0]));
  }
  for (const ValueType& s : sources) {
    if (!(s == sources[0])) {
      return contract_error(node, "sources differ: " + type_text(sources[0]) + " and " + type_text(s));
    }
  }
  for (const char* weight : {"norm", "proj"}) {
    if (node.input(weight).width() != sources[0].width()) {
      return contract_error(node, "`" + std::string(weight) + "` has " +
                                      std::to_string(node.input(weight).width()) + " entries, the sources " +
                                      std::to_string(sources[0].width()));
    }
  }
  // Positive also as the f32 that the kernel adds, or a row of zeros would become NaN.
  if (const double eps = node.real("eps"); !(static_cast<float>(eps) > 0) || !std::isfinite(eps)) {
    return contract_error(node, "`eps` must be positive, it is " + attribute_text(Attribute{eps}));
  }
  return std::vector<ValueType>{sources[0]};
}

Cost cost(const NodeSpec& node, const StepShape& step) {
  const auto sources = static_cast<double>(node.inputs("sources").size());
  return {.flops = 6 * sources * static_cast<double>(node.input("sources").width() * step.tokens)};
}

}  // namespace

const OpContract& depth_mix_contract() {
  static const OpContract contract{
      .name = "depth_mix",
      .equation = "h = sum_s softmax_s(rms(v_s) . (norm * proj)) v_s",
      .source = "spec kimi 3.7 (Attention Residuals)",
      .inputs = {{.name = "sources", .variadic = true},
                 {.name = "norm", .kind = InputSlot::Kind::kWeight},
                 {.name = "proj", .kind = InputSlot::Kind::kWeight}},
      .attributes = {{"eps", AttributeType::kFloat, "added to the mean of squares"}},
      .outputs = {"h"},
      .shard = ShardRule::kRows,
      .infer = infer,
      .cost = cost,
  };
  return contract;
}

}  // namespace firstlight
