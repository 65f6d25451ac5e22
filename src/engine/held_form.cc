#include "engine/held_form.h"

namespace firstlight {

std::optional<HeldAs> asked_form(const Graph& graph, const Node& node, std::string_view slot, HeldAs weights,
                                 HeldAs experts) {
  const std::string_view op = node.contract->name;
  if (op == "linear" && slot == "weight" && graph.spec(node).text("precision") == "model") return weights;
  if (op == "moe_experts" && (slot == "gate" || slot == "up" || slot == "down")) return experts;
  return std::nullopt;
}

void each_asked_form(
    const Graph& graph, const RunSettings& settings,
    const std::function<void(std::size_t weight, const Node& node, std::optional<HeldAs> asked)>& take) {
  for (const Node& node : graph.nodes()) {
    for (std::size_t s = 0; s < node.inputs.size(); ++s) {
      for (const ValueId v : node.inputs[s]) {
        const std::int32_t w = graph.values()[static_cast<std::size_t>(v)].weight;
        if (w < 0) continue;
        take(static_cast<std::size_t>(w), node,
             asked_form(graph, node, node.contract->inputs[s].name, settings.weights, settings.experts));
      }
    }
  }
}

}  // namespace firstlight
