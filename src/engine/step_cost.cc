#include "engine/step_cost.h"

#include <algorithm>
#include <string_view>

namespace firstlight {
namespace {

/// Bytes of the node's packed weights over those of bf16. 1 where the kernel holds no matrices.
double held_over_bf16(const Graph& graph, const Node& node, const Kernel& kernel) {
  std::int64_t elements = 0;
  for (const auto& slot : node.inputs) {
    for (const ValueId v : slot) {
      const Value& value = graph.values()[static_cast<std::size_t>(v)];
      if (value.weight >= 0 && value.type.shape.size() == 2) elements += value.type.width();
    }
  }
  const std::int64_t held = kernel.weight_bytes();
  return elements == 0 || held == 0 ? 1 : static_cast<double>(held) / (2.0 * static_cast<double>(elements));
}

Arith arith_of(const Node& node, const NodeSpec& spec, const LoadOptions& options) {
  const std::string_view op = node.contract->name;
  if (options.f32) return Arith::kF32;
  if (op == "linear" && spec.text("precision") == "f32") return Arith::kF32;
  if (op == "linear" && options.settings.weights != HeldAs::kStored) {
    const bool wide = options.settings.weights == HeldAs::kInt8 && options.settings.wide_activations;
    return wide ? Arith::kInt8Wide : Arith::kInt8;
  }
  if (op == "moe_experts" && options.settings.experts != HeldAs::kStored) return Arith::kInt8;
  if (op == "dsa_index" && options.settings.key_search != KeySearch::kFull) return Arith::kInt8;
  const bool bf16 = op == "linear" || op == "moe_experts" || op == "mla" || op == "attention";
  return bf16 ? Arith::kBF16 : Arith::kF32;
}

bool reads_context(const Node& node, const NodeSpec& spec) {
  if (node.contract->caches == nullptr) return false;
  return std::ranges::any_of(node.contract->caches(spec), [](const CacheSpec& cache) {
    return cache.scope == CacheSpec::Scope::kPerPage;
  });
}

}  // namespace

std::vector<NodeCost> step_costs(const Model& model, std::int64_t streams, std::int64_t rows,
                                 std::int64_t context, bool sampled,
                                 std::span<const double> distinct_experts) {
  const Graph& graph = model.graph();
  std::vector<NodeCost> costs;
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    const NodeSpec spec = graph.spec(node);
    // Contracts count one sequence: rows and caches add up over the streams, weights are read once.
    const Cost one =
        node.contract->cost(spec, {.tokens = rows, .sampled = sampled ? 1 : 0, .context = context});
    const Cost all = node.contract->cost(
        spec, {.tokens = streams * rows, .sampled = sampled ? streams : 0, .context = context});
    const auto count = static_cast<double>(streams);
    double weights = all.weight_bytes;
    if (node.contract->name == "moe_experts" && n < distinct_experts.size() && distinct_experts[n] > 0) {
      const Cost token = node.contract->cost(spec, {.tokens = 1});
      weights = token.weight_bytes / static_cast<double>(spec.input("experts").width()) * distinct_experts[n];
    }
    weights *= held_over_bf16(graph, node, model.program().kernel(n));
    costs.push_back({.cost = {.flops = count * one.flops,
                              .weight_bytes = weights,
                              .cache_bytes = count * one.cache_bytes},
                     .arith = arith_of(node, spec, model.options()),
                     .reads_context = reads_context(node, spec)});
  }
  return costs;
}

std::string node_kind(const Node& node) {
  const std::size_t dot = node.scope.rfind('.');
  std::string kind(node.contract->name);
  if (node.scope.empty()) return kind;
  return kind.append(" (")
      .append(dot == std::string::npos ? node.scope : node.scope.substr(dot + 1))
      .append(")");
}

}  // namespace firstlight
