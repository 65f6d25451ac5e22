#include "ops/mla/op.h"

#include <algorithm>
#include <string>

namespace firstlight {
namespace {

// Far above any model, and small enough that no product of three of them leaves 64 bits.
constexpr std::int64_t kLargestSize = std::int64_t{1} << 20;

struct Sizes {
  std::int64_t heads, nope, rope, v, latent;
  explicit Sizes(const NodeSpec& node)
      : heads(node.integer("heads")),
        nope(node.integer("nope_dim")),
        rope(node.integer("rope_dim")),
        v(node.integer("v_dim")),
        latent(node.input("c").width()) {}
};

std::string width_error(const char* input, std::int64_t has, const std::string& expected) {
  return std::string("`") + input + "` has width " + std::to_string(has) + ", expected " + expected;
}

Result<std::vector<ValueType>> infer(const NodeSpec& node) {
  for (const char* name : {"heads", "nope_dim", "rope_dim", "v_dim"}) {
    const std::int64_t least = std::string_view(name) == "rope_dim" ? 0 : 1;
    if (node.integer(name) < least || node.integer(name) > kLargestSize) {
      return contract_error(node, std::string("`") + name + "` is " + std::to_string(node.integer(name)) +
                                      ", expected " + std::to_string(least) + " to " +
                                      std::to_string(kLargestSize));
    }
  }
  const Sizes s(node);
  const ValueType& q = node.input("q");
  if (q.width() != s.heads * (s.nope + s.rope)) {
    return contract_error(
        node, width_error("q", q.width(),
                          "heads x (nope_dim + rope_dim) = " + std::to_string(s.heads * (s.nope + s.rope))));
  }
  if (s.latent < 1 || s.latent > kLargestSize) {
    return contract_error(node, width_error("c", s.latent, "1 to " + std::to_string(kLargestSize)));
  }
  if (node.has("k_pe") != (s.rope > 0)) {
    return contract_error(node, s.rope > 0 ? "`k_pe` is missing although `rope_dim` is not 0"
                                           : "`k_pe` is given although `rope_dim` is 0");
  }
  if (s.rope > 0 && node.input("k_pe").width() != s.rope) {
    return contract_error(
        node, width_error("k_pe", node.input("k_pe").width(), "rope_dim = " + std::to_string(s.rope)));
  }
  const Shape expected{s.heads * (s.nope + s.v), s.latent};
  if (node.input("kv_b").shape != expected) {
    return contract_error(
        node, "`kv_b` has shape " + shape_text(node.input("kv_b").shape) +
                  ", expected [heads x (nope_dim + v_dim), width of c] = " + shape_text(expected));
  }
  for (const char* name : {"q", "c", "k_pe"}) {
    if (node.has(name) && (node.input(name).dtype != DType::kF32 || node.input(name).rows != Rows::kTokens)) {
      return contract_error(
          node, std::string("`") + name + "` is " + type_text(node.input(name)) + ", expected f32[T, ...]");
    }
  }
  if (node.has("chosen")) {
    const ValueType& chosen = node.input("chosen");
    if (chosen.dtype != DType::kI32 || chosen.rows != Rows::kTokens || chosen.width() < 1) {
      return contract_error(node, "`chosen` is " + type_text(chosen) + ", expected i32[T, width]");
    }
  }
  return std::vector<ValueType>{{DType::kF32, Rows::kTokens, {s.heads * s.v}}};
}

/// Pairs (query, cached row) of one sequence's step.
double pairs(const NodeSpec& node, const StepShape& step) {
  const auto tokens = static_cast<double>(step.tokens);
  const double dense = tokens * static_cast<double>(step.context) + tokens * (tokens + 1) / 2;
  if (!node.has("chosen")) return dense;
  return std::min(dense, tokens * static_cast<double>(node.input("chosen").width()));
}

Cost cost(const NodeSpec& node, const StepShape& step) {
  const Sizes s(node);
  const auto heads = static_cast<double>(s.heads);
  const auto latent = static_cast<double>(s.latent);
  const auto row = static_cast<double>(s.latent + s.rope);
  const double absorbed = 2 * heads * latent * static_cast<double>(s.nope + s.v);
  const double read =
      std::min(pairs(node, step), static_cast<double>(step.context) + static_cast<double>(step.tokens));
  return {
      .flops = absorbed * static_cast<double>(step.tokens) + 2 * heads * (row + latent) * pairs(node, step),
      .weight_bytes = absorbed,  // two bytes an element
      .cache_bytes = step.cached_element() * row * read};
}

}  // namespace

Cost mla_expanded_cost(const NodeSpec& node, const StepShape& step) {
  const Sizes s(node);
  const auto heads = static_cast<double>(s.heads);
  const double row = 2 * heads * static_cast<double>(s.latent) * static_cast<double>(s.nope + s.v);
  const double pair = 2 * heads * static_cast<double>(s.nope + s.rope + s.v);
  Cost expanded = cost(node, step);
  expanded.flops = row * static_cast<double>(step.context + step.tokens) + pair * pairs(node, step);
  return expanded;
}

namespace {

std::vector<CacheSpec> caches(const NodeSpec& node) {
  const Sizes s(node);
  // Rows are whole vectors of 16, so that kernels need no tail.
  const std::int64_t padded = (s.latent + s.rope + 15) / 16 * 16;
  return {{.name = "latent",
           .scope = CacheSpec::Scope::kPerPage,
           .elements = kPageTokens * padded,
           .storage = CacheSpec::Storage::kCompute}};
}

}  // namespace

const OpContract& mla_contract() {
  static const OpContract contract{
      .name = "mla",
      .equation = "o_h = W_UV[h] sum_s softmax_s(scale ((W_UK[h]^T q_h) . c_s + qr_h . kr_s)) c_s",
      .source = "DeepSeek-V2, arXiv 2405.04434, section 2.1; spec kimi 3.4, dsa 3",
      .inputs = {{.name = "q"},
                 {.name = "c"},
                 {.name = "k_pe", .optional = true},
                 {.name = "kv_b", .kind = InputSlot::Kind::kWeight},
                 {.name = "chosen", .optional = true}},
      .attributes = {{"heads", AttributeType::kInt, "attention heads"},
                     {"nope_dim", AttributeType::kInt, "query channels of a head that meet the latent"},
                     {"rope_dim", AttributeType::kInt, "query channels of a head that meet k_pe; 0: none"},
                     {"v_dim", AttributeType::kInt, "output channels of a head"},
                     {"scale", AttributeType::kFloat, "factor of the scores"}},
      .outputs = {"o"},
      .shard = ShardRule::kHeads,
      .infer = infer,
      .cost = cost,
      .caches = caches,
  };
  return contract;
}

}  // namespace firstlight
