#include "ops/kda/op.h"

#include <cmath>

#include "ops/kda/layout.h"

namespace firstlight {

std::int64_t kda_key_heads(const NodeSpec& node) {
  const std::int64_t given = node.integer("key_heads");
  return given == 0 ? node.integer("heads") : given;
}

bool kda_head_decay(const NodeSpec& node) { return node.text("decay") == "head"; }

namespace {

Result<std::vector<ValueType>> infer(const NodeSpec& node) {
  const std::int64_t heads = node.integer("heads");
  const std::int64_t dk = node.integer("key_dim");
  const std::int64_t dv = node.integer("value_dim");
  // 2^20 is far beyond any head; it keeps every product below within 64 bits.
  constexpr std::int64_t kLimit = std::int64_t{1} << 20;
  const auto out_of_range = [](std::int64_t n) { return n < 1 || n > kLimit; };
  if (out_of_range(heads) || out_of_range(dk) || out_of_range(dv)) {
    return contract_error(node, "`heads` = " + std::to_string(heads) + ", `key_dim` = " + std::to_string(dk) +
                                    " and `value_dim` = " + std::to_string(dv) + " must be in 1..2^20");
  }
  const std::int64_t key_heads = kda_key_heads(node);
  if (key_heads < 1 || key_heads > heads || heads % key_heads != 0) {
    return contract_error(node, "`key_heads` = " + std::to_string(key_heads) +
                                    " must divide `heads` = " + std::to_string(heads));
  }
  if (const std::string& decay = node.text("decay"); decay != "channel" && decay != "head") {
    return contract_error(node, "`decay` is \"" + decay + "\", known are \"channel\" and \"head\"");
  }
  const bool head_decay = kda_head_decay(node);
  const std::int64_t decays = head_decay ? heads : heads * dk;
  const std::string_view decay_meaning = head_decay ? "heads" : "heads * key_dim";
  const struct {
    std::string_view slot;
    std::int64_t width;
    std::string_view meaning;
  } values[] = {{"q", key_heads * dk, "key_heads * key_dim"},
                {"k", key_heads * dk, "key_heads * key_dim"},
                {"v", heads * dv, "heads * value_dim"},
                {"f", decays, decay_meaning},
                {"beta", heads, "heads"}};
  for (const auto& value : values) {
    const ValueType& type = node.input(value.slot);
    if (type.dtype != DType::kF32 || type.rows != Rows::kTokens || type.width() != value.width) {
      std::string what = "`";
      what.append(value.slot).append("` is ").append(type_text(type));
      what.append(", f32[T, ").append(std::to_string(value.width)).append("] is expected (");
      return contract_error(node, what.append(value.meaning).append(")"));
    }
  }
  if (node.input("A_log").width() < heads) {
    return contract_error(node, "`A_log` has " + std::to_string(node.input("A_log").width()) +
                                    " entries for " + std::to_string(heads) + " heads");
  }
  if (node.input("dt_bias").width() != decays) {
    std::string what = "`dt_bias` has " + std::to_string(node.input("dt_bias").width()) + " entries, ";
    what.append(decay_meaning).append(" = ").append(std::to_string(decays));
    return contract_error(node, what.append(" are expected"));
  }
  const std::string& gate = node.text("gate");
  const double bound = node.real("lower_bound");
  if (gate == "bounded") {
    if (!(bound < 0) || !std::isfinite(bound)) {
      return contract_error(
          node, "gate \"bounded\" needs a negative `lower_bound`, it is " + attribute_text(Attribute{bound}));
    }
  } else if (gate == "softplus") {
    if (bound != 0) return contract_error(node, "gate \"softplus\" takes no `lower_bound`");
  } else {
    return contract_error(node, "`gate` is \"" + gate + "\", known are \"softplus\" and \"bounded\"");
  }
  return std::vector<ValueType>{{DType::kF32, Rows::kTokens, {heads * dv}}};
}

KdaLayout layout(const NodeSpec& node) { return {node.integer("key_dim"), node.integer("value_dim")}; }

Cost cost(const NodeSpec& node, const StepShape& step) {
  const KdaLayout l = layout(node);
  const auto heads = static_cast<double>(node.integer("heads"));
  const auto dk = static_cast<double>(l.dk);
  const auto dv = static_cast<double>(l.dv);
  const auto tokens = static_cast<double>(step.tokens);
  constexpr auto kRows = static_cast<double>(kKdaChunk);
  // Multiply-adds of a token: two products with S_0 and its update; the chunk's own rows twice, half filled.
  const double token_fma = 3 * dk * dv + kRows * (dk + dv);
  // S_0 is read once for up to 16 rows and once more, and written, when the chunk ends; the open rows are
  // read (half of them on average) and one is written.
  const double s0 = 4 * static_cast<double>(l.s0_floats());
  const double rows = 4 * (static_cast<double>(l.key_stride()) * 2 + static_cast<double>(l.value_stride()));
  const double state =
      s0 * (std::ceil(tokens / kRows) + 2 * tokens / kRows) + rows * (tokens >= kRows ? 0 : kRows / 2);
  return {.flops = 2 * heads * token_fma * tokens,
          .weight_bytes = 4 * heads * (kda_head_decay(node) ? 2 : dk + 1),
          .cache_bytes = heads * state};
}

std::vector<CacheSpec> caches(const NodeSpec& node) {
  return {{.name = "state",
           .scope = CacheSpec::Scope::kPerSequence,
           .elements = node.integer("heads") * layout(node).head_floats(),
           .storage = CacheSpec::Storage::kF32}};
}

}  // namespace

const OpContract& kda_contract() {
  static const OpContract contract{
      .name = "kda",
      .equation = "S = exp(g) * S; S = S + k (beta (v - S^T k))^T; o = S^T q",
      .source =
          "Kimi Linear (arXiv 2510.26692), Gated DeltaNet (arXiv 2412.06464); spec kimi 3.3 steps 3-8, 4.6",
      .inputs = {{.name = "q"},
                 {.name = "k"},
                 {.name = "v"},
                 {.name = "f"},
                 {.name = "beta"},
                 {.name = "A_log", .kind = InputSlot::Kind::kWeight},
                 {.name = "dt_bias", .kind = InputSlot::Kind::kWeight}},
      .attributes =
          {{"heads", AttributeType::kInt, "heads of v, f and beta"},
           {"key_dim", AttributeType::kInt, "width of a head of q and k"},
           {"value_dim", AttributeType::kInt, "width of a head of v"},
           {"gate", AttributeType::kText,
            "\"softplus\": g = -exp(A_log) softplus(f + dt_bias); \"bounded\": g = lower_bound "
            "sigmoid(exp(A_log) (f + dt_bias))"},
           {"lower_bound", AttributeType::kFloat, "smallest g of the bounded gate, below 0", Attribute{0.0}},
           {"decay", AttributeType::kText,
            "\"channel\": one decay a key channel, f and dt_bias [heads * key_dim]; \"head\": one a "
            "head, [heads]",
            Attribute{std::string("channel")}},
           {"key_heads", AttributeType::kInt,
            "heads of q and k, each shared by consecutive heads of v; 0: as many as `heads`",
            Attribute{std::int64_t{0}}}},
      .outputs = {"o"},
      .shard = ShardRule::kHeads,
      .infer = infer,
      .cost = cost,
      .caches = caches,
  };
  return contract;
}

}  // namespace firstlight
