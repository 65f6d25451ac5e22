#include "ops/dsa_index/op.h"

#include <algorithm>
#include <string>

namespace firstlight {
namespace {

// Far above any model, and small enough that no product of three of them leaves 64 bits.
constexpr std::int64_t kLargestSize = std::int64_t{1} << 20;

struct Sizes {
  std::int64_t heads, dim, topk, kpool;
  bool select_tail;
  explicit Sizes(const NodeSpec& node)
      : heads(node.integer("heads")),
        dim(node.integer("dim")),
        topk(node.integer("topk")),
        kpool(node.integer("kpool")),
        select_tail(node.flag("select_tail")) {}
  [[nodiscard]] std::int64_t width() const { return topk + (kpool > 1 && select_tail ? kpool - 1 : 0); }
};

Result<std::vector<ValueType>> infer(const NodeSpec& node) {
  for (const char* name : {"heads", "dim", "topk", "kpool"}) {
    if (node.integer(name) < 1 || node.integer(name) > kLargestSize) {
      return contract_error(node, std::string("`") + name + "` is " + std::to_string(node.integer(name)) +
                                      ", expected 1 to " + std::to_string(kLargestSize));
    }
  }
  const Sizes s(node);
  if (kPageTokens % s.kpool != 0) {
    return contract_error(node, "`kpool` is " + std::to_string(s.kpool) + ", expected a divisor of the " +
                                    std::to_string(kPageTokens) + " tokens of a page");
  }
  if (s.topk % s.kpool != 0) {
    return contract_error(node, "`topk` is " + std::to_string(s.topk) +
                                    ", expected a multiple of `kpool` = " + std::to_string(s.kpool));
  }
  for (const char* name : {"gate", "ape"}) {
    if (node.has(name) != (s.kpool > 1)) {
      return contract_error(node, std::string("`") + name +
                                      (s.kpool > 1 ? "` is missing although `kpool` is above 1"
                                                   : "` is given although `kpool` is 1"));
    }
  }
  const auto expect = [&](const char* name, std::int64_t width) -> Status {
    if (!node.has(name) || node.input(name).width() == width) return {};
    return contract_error(node, std::string("`") + name + "` has " +
                                    std::to_string(node.input(name).width()) + " channels, expected " +
                                    std::to_string(width));
  };
  FL_TRY(expect("q", s.heads * s.dim));
  FL_TRY(expect("k", s.dim));
  FL_TRY(expect("w", s.heads));
  FL_TRY(expect("gate", s.dim));
  FL_TRY(expect("ape", s.kpool * s.dim));
  for (const char* name : {"q", "k", "w", "gate"}) {
    if (node.has(name) && (node.input(name).dtype != DType::kF32 || node.input(name).rows != Rows::kTokens)) {
      return contract_error(
          node, std::string("`") + name + "` is " + type_text(node.input(name)) + ", expected f32[T, ...]");
    }
  }
  return std::vector<ValueType>{{DType::kI32, Rows::kTokens, {s.width()}}};
}

Cost cost(const NodeSpec& node, const StepShape& step) {
  const Sizes s(node);
  const auto tokens = static_cast<double>(step.tokens);
  const auto context = static_cast<double>(step.context);
  const auto kpool = static_cast<double>(s.kpool);
  const auto dim = static_cast<double>(s.dim);
  const double pairs = (tokens * context + tokens * (tokens + 1) / 2) / kpool;
  return {.flops = 2 * static_cast<double>(s.heads) * (dim + 1) * pairs,
          .weight_bytes = s.kpool > 1 ? 4 * kpool * dim : 0,
          // Bytes and bounds of all keys are read; these and the keys themselves are written.
          .cache_bytes = ((dim + 12) * context + (step.cached_element() * dim + dim + 12) * tokens) / kpool};
}

}  // namespace

Cost dsa_full_cost(const NodeSpec& node, const StepShape& step) {
  const Sizes s(node);
  Cost full = cost(node, step);
  full.cache_bytes = step.cached_element() * static_cast<double>(s.dim) *
                     static_cast<double>(step.context + step.tokens) / static_cast<double>(s.kpool);
  return full;
}

Cost dsa_two_stage_cost(const NodeSpec& node, const StepShape& step, std::int64_t candidates) {
  const Sizes s(node);
  const std::int64_t searched = (candidates + kPageTokens - 1) / kPageTokens * kPageTokens + 3 * kPageTokens;
  StepShape shorter = step;
  shorter.context = std::min(step.context, searched);
  Cost both = cost(node, shorter);
  const std::int64_t pages = step.context / kPageTokens;
  const auto means = static_cast<double>(pages);
  const auto dim = static_cast<double>(s.dim);
  both.flops += 2 * static_cast<double>(s.heads) * (dim + 1) * means * static_cast<double>(step.tokens);
  both.cache_bytes += (dim + 8) * means;
  return both;
}

namespace {

std::vector<CacheSpec> caches(const NodeSpec& node) {
  const Sizes s(node);
  const std::int64_t lanes = dsa_index_lanes(s.kpool);
  const std::int64_t bytes = dsa_index_key_bytes(s.dim);
  constexpr std::int64_t kFloat = sizeof(float);
  std::vector<CacheSpec> out{
      {.name = "keys",  // [keys, dim rounded up to 2]
       .scope = CacheSpec::Scope::kPerPage,
       .elements = kPageTokens / s.kpool * dsa_index_key_elements(s.dim),
       .storage = CacheSpec::Storage::kCompute},
      {.name = "byte_keys",  // [dim / 4, lanes, 4] bytes, then f32 [lanes] scale, residual, norm
       .scope = CacheSpec::Scope::kPerPage,
       .elements = lanes * (bytes + 3 * kFloat),
       .storage = CacheSpec::Storage::kBytes},
      {.name = "mean",  // [dim] bytes, then f32 scale, residual
       .scope = CacheSpec::Scope::kPerPage,
       .elements = bytes + 2 * kFloat,
       .storage = CacheSpec::Storage::kBytes}};
  if (s.kpool > 1) {
    out.push_back({.name = "recent",  // [kpool, key | gate, dim]: token s in slot s % kpool
                   .scope = CacheSpec::Scope::kPerSequence,
                   .elements = s.kpool * 2 * s.dim,
                   .storage = CacheSpec::Storage::kF32});
  }
  return out;
}

}  // namespace

const OpContract& dsa_index_contract() {
  static const OpContract contract{
      .name = "dsa_index",
      .equation = "S_t = the topk largest I(t,s) = sum_h w_h (Hi Di)^-1/2 relu(q_h . k_s), s <= t",
      .source = "DeepSeek-V3.2, arXiv 2512.02556; spec dsa 2 and 2.1",
      .inputs = {{.name = "q"},
                 {.name = "k"},
                 {.name = "w"},
                 {.name = "gate", .optional = true},
                 {.name = "ape", .kind = InputSlot::Kind::kWeight, .optional = true}},
      .attributes = {{"heads", AttributeType::kInt, "index heads Hi"},
                     {"dim", AttributeType::kInt, "channels Di of a head and of a key"},
                     {"topk", AttributeType::kInt, "positions chosen by score"},
                     {"kpool", AttributeType::kInt, "tokens that share one pooled key", std::int64_t{1}},
                     {"select_tail", AttributeType::kBool,
                      "always choose the visible tokens of the incomplete last pool", true}},
      .outputs = {"chosen"},
      .shard = ShardRule::kReplicate,
      .infer = infer,
      .cost = cost,
      .caches = caches,
  };
  return contract;
}

}  // namespace firstlight
