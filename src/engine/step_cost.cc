#include "engine/step_cost.h"

#include <algorithm>
#include <string_view>

#include "engine/held_form.h"
#include "ops/dsa_index/op.h"
#include "ops/mla/op.h"

namespace firstlight {
namespace {

/// Bytes of the node's packed weights that a step reads, over those of bf16. 1 where the kernel holds no
/// matrices.
double read_over_bf16(const Graph& graph, const Node& node, const Kernel& kernel, bool prompt) {
  std::int64_t elements = 0;
  for (const auto& slot : node.inputs) {
    for (const ValueId v : slot) {
      const Value& value = graph.values()[static_cast<std::size_t>(v)];
      if (value.weight >= 0 && value.type.shape.size() == 2) elements += value.type.width();
    }
  }
  const std::int64_t read = kernel.read_bytes(!prompt);
  return elements == 0 || read == 0 ? 1 : static_cast<double>(read) / (2.0 * static_cast<double>(elements));
}

/// What the node's matrices are held as.
HeldAs held_by(const Model& model, const Node& node) {
  HeldAs held = HeldAs::kStored;
  each_weight(model.graph(), node, [&](std::size_t weight, std::string_view) {
    if (held == HeldAs::kStored) held = model.held(weight);
  });
  return held;
}

Arith arith_of(const Model& model, const Node& node, const NodeSpec& spec) {
  const std::string_view op = node.contract->name;
  const RunSettings& settings = model.options().settings;
  if (model.options().f32) return Arith::kF32;
  if (op == "linear" && spec.text("precision") == "f32") return Arith::kF32;
  if (op == "linear" || op == "moe_experts") {
    const HeldAs held = held_by(model, node);
    if (held == HeldAs::kStored) return Arith::kBF16;
    return op == "linear" && held == HeldAs::kInt8 && settings.wide_activations ? Arith::kInt8Wide
                                                                                : Arith::kInt8;
  }
  if (op == "dsa_index") return settings.key_search == KeySearch::kFull ? Arith::kBF16 : Arith::kInt8;
  return op == "mla" || op == "attention" ? Arith::kBF16 : Arith::kF32;
}

/// What the contract says, or what the form costs in which the node computes.
Cost cost_of(const Model& model, const Node& node, const NodeSpec& spec, const StepShape& shape,
             bool prompt) {
  const RunSettings& settings = model.options().settings;
  const std::string_view op = node.contract->name;
  if (op == "dsa_index" && settings.key_search == KeySearch::kFull) return dsa_full_cost(spec, shape);
  if (op == "dsa_index" && settings.key_search == KeySearch::kTwoStage &&
      shape.context >= settings.min_context) {
    return dsa_two_stage_cost(spec, shape, settings.candidates);
  }
  if (op == "mla" && prompt && settings.expanded_prefill && !spec.has("chosen")) {
    return mla_expanded_cost(spec, shape);
  }
  return node.contract->cost(spec, shape);
}

bool reads_context(const Node& node, const NodeSpec& spec) {
  if (node.contract->caches == nullptr) return false;
  return std::ranges::any_of(node.contract->caches(spec), [](const CacheSpec& cache) {
    return cache.scope == CacheSpec::Scope::kPerPage;
  });
}

}  // namespace

std::vector<NodeCost> step_costs(const Model& model, std::int64_t streams, std::int64_t rows,
                                 std::int64_t context, bool prompt, bool sampled,
                                 std::span<const double> distinct_experts) {
  const Graph& graph = model.graph();
  std::vector<NodeCost> costs;
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    const NodeSpec spec = graph.spec(node);
    // Contracts count one sequence: rows and caches add up over the streams, weights are read once.
    StepShape shape{
        .tokens = rows, .sampled = sampled ? 1 : 0, .context = context, .f32 = model.options().f32};
    const Cost one = cost_of(model, node, spec, shape, prompt);
    shape.tokens *= streams;
    shape.sampled *= streams;
    const Cost all = cost_of(model, node, spec, shape, prompt);
    const auto count = static_cast<double>(streams);
    double weights = all.weight_bytes;
    if (node.contract->name == "moe_experts" && n < distinct_experts.size() && distinct_experts[n] > 0) {
      const Cost token = node.contract->cost(spec, {.tokens = 1});
      weights = token.weight_bytes / static_cast<double>(spec.input("experts").width()) * distinct_experts[n];
    }
    weights *= read_over_bf16(graph, node, model.program().kernel(n), prompt);
    costs.push_back({.cost = {.flops = count * one.flops,
                              .weight_bytes = weights,
                              .cache_bytes = count * one.cache_bytes},
                     .arith = arith_of(model, node, spec),
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
