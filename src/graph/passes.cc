#include "graph/passes.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace firstlight {

Status verify_graph(const Graph& graph) {
  std::vector<bool> known(graph.values().size(), false);
  known[static_cast<std::size_t>(graph.tokens())] = true;
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    const std::string where = "node " + std::to_string(n) + " (" + std::string(node.contract->name) + ")";
    for (const auto& slot : node.inputs) {
      for (const ValueId v : slot) {
        const Value& value = graph.values()[static_cast<std::size_t>(v)];
        if (value.weight < 0 && !known[static_cast<std::size_t>(v)]) {
          return Error{where + " reads a value before it is produced"};
        }
      }
    }
    FL_ASSIGN(const std::vector<ValueType> outputs, node.contract->infer(graph.spec(node)));
    if (outputs.size() != node.outputs.size()) return Error{where + " has the wrong number of outputs"};
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      const auto id = static_cast<std::size_t>(node.outputs[o]);
      if (!(graph.values()[id].type == outputs[o])) return Error{where + " changed the type of an output"};
      if (known[id]) return Error{where + " produces a value twice"};
      known[id] = true;
    }
  }
  if (graph.logits() < 0 || !known[static_cast<std::size_t>(graph.logits())]) {
    return Error{"the graph has no logits"};
  }
  return {};
}

int fuse_linears(Graph& graph) {
  std::vector<Node> fused;
  std::map<std::pair<ValueId, std::string>, std::size_t> group;  // (input, precision) -> node in `fused`
  int removed = 0;
  for (const Node& node : graph.nodes()) {
    if (node.contract->name != "linear") {
      fused.push_back(node);
      continue;
    }
    const std::pair key{node.inputs[0][0], graph.spec(node).text("precision")};
    const auto [it, fresh] = group.emplace(key, fused.size());
    if (fresh) {
      fused.push_back(node);
      continue;
    }
    Node& first = fused[it->second];
    first.inputs[1].insert(first.inputs[1].end(), node.inputs[1].begin(), node.inputs[1].end());
    first.outputs.insert(first.outputs.end(), node.outputs.begin(), node.outputs.end());
    ++removed;
  }
  graph.replace_nodes(std::move(fused));
  return removed;
}

std::int64_t saved_bytes(const Graph& graph, const Node& node) {
  if (node.contract->name != "linear") return 0;
  const ValueType& x = graph.values()[static_cast<std::size_t>(node.inputs[0][0])].type;
  return static_cast<std::int64_t>((node.inputs[1].size() - 1) * dtype_size(x.dtype)) * x.width();
}

BufferPlan plan_buffers(std::span<const Lifetime> lifetimes) {
  constexpr std::int64_t kAlign = 64;
  std::vector<std::size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // Largest first: the big short-lived buffers share one region, the small ones fill the gaps.
  std::ranges::stable_sort(
      order, [&](std::size_t a, std::size_t b) { return lifetimes[a].bytes > lifetimes[b].bytes; });

  BufferPlan plan{.offsets = std::vector<std::int64_t>(lifetimes.size(), 0)};
  std::vector<std::size_t> placed;  // by offset ascending
  for (const std::size_t i : order) {
    const std::int64_t bytes = (lifetimes[i].bytes + kAlign - 1) / kAlign * kAlign;
    std::int64_t offset = 0;
    for (const std::size_t j : placed) {
      if (lifetimes[j].last < lifetimes[i].first || lifetimes[i].last < lifetimes[j].first) continue;
      const std::int64_t end = plan.offsets[j] + (lifetimes[j].bytes + kAlign - 1) / kAlign * kAlign;
      if (plan.offsets[j] >= offset + bytes) break;
      offset = std::max(offset, end);
    }
    plan.offsets[i] = offset;
    plan.bytes = std::max(plan.bytes, offset + bytes);
    const auto at =
        std::ranges::upper_bound(placed, offset, {}, [&](std::size_t j) { return plan.offsets[j]; });
    placed.insert(at, i);
  }
  return plan;
}

}  // namespace firstlight
