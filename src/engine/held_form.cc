#include "engine/held_form.h"

#include "ops/linear/pack_weight.h"

namespace firstlight {

HeldAs held_form(const Graph& graph, const Node& node, std::string_view slot, HeldAs stored,
                 const RunSettings& settings) {
  const std::string_view op = node.contract->name;
  if (op == "linear" && slot == "weight" && graph.spec(node).text("precision") == "model") {
    return held_form(settings.weights, stored);
  }
  if (op == "moe_experts" && (slot == "gate" || slot == "up" || slot == "down")) {
    return held_form(settings.experts, stored);
  }
  if (op == "mla" && slot == "kv_b") return held_in_bytes(settings.weights, stored);
  return HeldAs::kStored;
}

void each_weight(const Graph& graph, const Node& node,
                 const std::function<void(std::size_t weight, std::string_view slot)>& take) {
  for (std::size_t s = 0; s < node.inputs.size(); ++s) {
    for (const ValueId v : node.inputs[s]) {
      const std::int32_t w = graph.values()[static_cast<std::size_t>(v)].weight;
      if (w >= 0) take(static_cast<std::size_t>(w), node.contract->inputs[s].name);
    }
  }
}

void each_weight(
    const Graph& graph,
    const std::function<void(std::size_t weight, const Node& node, std::string_view slot)>& take) {
  for (const Node& node : graph.nodes()) {
    each_weight(graph, node, [&](std::size_t weight, std::string_view slot) { take(weight, node, slot); });
  }
}

}  // namespace firstlight
