#include "ops/attention/op.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <string>

#include "base/round_up.h"

namespace firstlight {
namespace {

// Far above any model, and small enough that no product of two of them and a page leaves 64 bits.
constexpr std::int64_t kLargestSize = std::int64_t{1} << 20;
// A window above every context is no window; positions plus a window stay far inside 64 bits.
constexpr std::int64_t kLargestWindow = std::int64_t{1} << 40;

struct Sizes {
  std::int64_t heads, kv_heads, key, value, window;
  explicit Sizes(const NodeSpec& node)
      : heads(node.integer("heads")),
        kv_heads(node.integer("kv_heads")),
        key(node.integer("key_dim")),
        value(node.integer("value_dim")),
        window(node.integer("window")) {}
};

Status check_range(const NodeSpec& node, const char* name, std::int64_t least, std::int64_t most) {
  const std::int64_t value = node.integer(name);
  if (value >= least && value <= most) return {};
  return contract_error(node, std::string("`") + name + "` is " + std::to_string(value) + ", expected " +
                                  std::to_string(least) + " to " + std::to_string(most));
}

Status check_input(const NodeSpec& node, const char* name, const char* formula, std::int64_t width) {
  const ValueType& type = node.input(name);
  if (type.dtype != DType::kF32 || type.rows != Rows::kTokens) {
    return contract_error(node,
                          std::string("`") + name + "` is " + type_text(type) + ", expected f32[T, ...]");
  }
  if (type.width() == width) return {};
  return contract_error(node, std::string("`") + name + "` has width " + std::to_string(type.width()) +
                                  ", expected " + formula + " = " + std::to_string(width));
}

Result<std::vector<ValueType>> infer(const NodeSpec& node) {
  for (const char* name : {"heads", "kv_heads", "key_dim", "value_dim"}) {
    FL_TRY(check_range(node, name, 1, kLargestSize));
  }
  FL_TRY(check_range(node, "window", 0, kLargestWindow));
  const Sizes s(node);
  if (s.heads % s.kv_heads != 0) {
    return contract_error(node, "`heads` is " + std::to_string(s.heads) +
                                    ", expected a multiple of `kv_heads` = " + std::to_string(s.kv_heads));
  }
  FL_TRY(check_input(node, "q", "heads x key_dim", s.heads * s.key));
  FL_TRY(check_input(node, "k", "kv_heads x key_dim", s.kv_heads * s.key));
  FL_TRY(check_input(node, "v", "kv_heads x value_dim", s.kv_heads * s.value));
  if (node.has("sinks") && node.input("sinks").shape != Shape{s.heads}) {
    return contract_error(node, "`sinks` has shape " + shape_text(node.input("sinks").shape) +
                                    ", expected [heads] = " + shape_text(Shape{s.heads}));
  }
  // Written so that NaN is refused too.
  if (!(std::abs(node.real("scale")) <= FLT_MAX)) {
    return contract_error(
        node, "`scale` is " + attribute_text(node.attribute("scale")) + ", expected a finite number");
  }
  if (!(node.real("softcap") >= 0 && node.real("softcap") <= FLT_MAX)) {
    return contract_error(
        node, "`softcap` is " + attribute_text(node.attribute("softcap")) + ", expected 0 or more, finite");
  }
  return std::vector<ValueType>{{DType::kF32, Rows::kTokens, {s.heads * s.value}}};
}

/// Visible positions, summed over the rows of one sequence's step.
double pairs(const Sizes& s, const StepShape& step) {
  const auto tokens = static_cast<double>(step.tokens);
  const auto context = static_cast<double>(step.context);
  if (s.window == 0) return tokens * context + tokens * (tokens + 1) / 2;
  // The first rows see all before them, until there are more than the window holds.
  const double window = static_cast<double>(s.window);
  const double growing = std::clamp(window - context, 0.0, tokens);
  return growing * context + growing * (growing + 1) / 2 + (tokens - growing) * window;
}

Cost cost(const NodeSpec& node, const StepShape& step) {
  const Sizes s(node);
  const double seen = pairs(s, step);
  double read = static_cast<double>(step.context) + static_cast<double>(step.tokens);
  if (s.window > 0)
    read = std::min(read, static_cast<double>(s.window) + static_cast<double>(step.tokens) - 1);
  const auto row = static_cast<double>(s.kv_heads) * static_cast<double>(s.key + s.value);
  return {.flops = 2 * static_cast<double>(s.heads) * static_cast<double>(s.key + s.value) * seen,
          .weight_bytes = node.has("sinks") ? 4 * static_cast<double>(s.heads) : 0,
          .cache_bytes = step.cached_element() * row * read};
}

std::vector<CacheSpec> caches(const NodeSpec& node) {
  const Sizes s(node);
  // A key channel's 64 positions are whole vectors whatever key_dim is, but two channels are a pair in bf16;
  // a value row is padded to whole vectors.
  const std::int64_t keys = round_up(s.key, 2);
  const std::int64_t values = round_up(s.value, 16);
  return {{.name = "k",
           .scope = CacheSpec::Scope::kPerPage,
           .elements = s.kv_heads * keys * kPageTokens,
           .storage = CacheSpec::Storage::kCompute},
          {.name = "v",
           .scope = CacheSpec::Scope::kPerPage,
           .elements = s.kv_heads * kPageTokens * values,
           .storage = CacheSpec::Storage::kCompute}};
}

}  // namespace

const OpContract& attention_contract() {
  static const OpContract contract{
      .name = "attention",
      .equation = "o_h = sum_s softmax_s(scale q_h . k_{g(h),s}) v_{g(h),s}, t - window < s <= t",
      .source = "Ainslie et al., arXiv 2305.13245; window: arXiv 2310.06825; sinks: the gpt-oss model card",
      .inputs = {{.name = "q"},
                 {.name = "k"},
                 {.name = "v"},
                 {.name = "sinks", .kind = InputSlot::Kind::kWeight, .optional = true}},
      .attributes = {{"heads", AttributeType::kInt, "query heads"},
                     {"kv_heads", AttributeType::kInt, "key and value heads; divides heads"},
                     {"key_dim", AttributeType::kInt, "channels of a query or key head"},
                     {"value_dim", AttributeType::kInt, "channels of a value head"},
                     {"scale", AttributeType::kFloat, "factor of q . k"},
                     {"window", AttributeType::kInt,
                      "positions that a query sees, its own among them; 0: all", std::int64_t{0}},
                     {"softcap", AttributeType::kFloat,
                      "scores become softcap tanh(score / softcap); 0: they stay", 0.0}},
      .outputs = {"o"},
      .shard = ShardRule::kHeads,
      .infer = infer,
      .cost = cost,
      .caches = caches,
  };
  return contract;
}

}  // namespace firstlight
