#include "ops/short_conv/op.h"

namespace firstlight {
namespace {

// A block of channels keeps its taps and its window of inputs in registers: twice eight of them fit.
constexpr std::int64_t kMaxTaps = 8;

Result<std::vector<ValueType>> infer(const NodeSpec& node) {
  const ValueType& x = node.input("x");
  const ValueType& weight = node.input("weight");
  if (x.dtype != DType::kF32 || x.rows != Rows::kTokens) {
    return contract_error(node, "`x` must be f32[T, channels], it is " + type_text(x));
  }
  const std::int64_t channels = x.width();
  if (channels < 1 || weight.shape.empty() || weight.shape.front() != channels) {
    return contract_error(node, "`x` has " + std::to_string(channels) + " channels, the weight is " +
                                    shape_text(weight.shape) + " where [channels, 1, taps] is expected");
  }
  const std::int64_t taps = weight.width() / channels;
  if (taps < 2 || taps > kMaxTaps) {
    return contract_error(node, "the weight has " + std::to_string(taps) + " taps a channel, 2 to " +
                                    std::to_string(kMaxTaps) + " are supported");
  }
  return std::vector<ValueType>{x};
}

std::int64_t history_elements(const NodeSpec& node) {
  return node.input("weight").width() - node.input("x").width();  // (K - 1) * C
}

Cost cost(const NodeSpec& node, const StepShape& step) {
  const auto weights = static_cast<double>(node.input("weight").width());
  return {.flops = 2 * weights * static_cast<double>(step.tokens),
          .weight_bytes = 4 * weights,
          // Read and written.
          .cache_bytes = 2 * step.cached_element() * static_cast<double>(history_elements(node))};
}

std::vector<CacheSpec> caches(const NodeSpec& node) {
  return {{.name = "conv",
           .scope = CacheSpec::Scope::kPerSequence,
           .elements = history_elements(node),
           .storage = CacheSpec::Storage::kCompute}};
}

}  // namespace

const OpContract& short_conv_contract() {
  static const OpContract contract{
      .name = "short_conv",
      .equation = "y[t] = SiLU(sum_j w[:, j] * x[t - K + 1 + j])",
      .source = "Kimi Linear (arXiv 2510.26692); spec kimi 3.3 step 2",
      .inputs = {{.name = "x"}, {.name = "weight", .kind = InputSlot::Kind::kWeight}},
      .attributes = {},
      .outputs = {"y"},
      .shard = ShardRule::kHeads,
      .infer = infer,
      .cost = cost,
      .caches = caches,
  };
  return contract;
}

}  // namespace firstlight
