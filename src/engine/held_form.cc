#include "engine/held_form.h"

namespace firstlight {

std::optional<HeldAs> asked_form(const Graph& graph, const Node& node, std::string_view slot, HeldAs weights,
                                 HeldAs experts) {
  const std::string_view op = node.contract->name;
  if (op == "linear" && slot == "weight" && graph.spec(node).text("precision") == "model") return weights;
  if (op == "moe_experts" && (slot == "gate" || slot == "up" || slot == "down")) return experts;
  return std::nullopt;
}

}  // namespace firstlight
