// Which weights a run holds in few bits: one answer for the memory plan, for settings without effect and for
// `firstlight quantize`.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

#include "graph/graph.h"
#include "ops/settings.h"

namespace firstlight {

/// What the weight that `node` reads at `slot`, and that is `stored` so, is held as: settings.experts decides
/// for the matrices of moe_experts, settings.weights for those of linear layers that are not computed in f32,
/// and for kv_b of latent attention, which is never held in 4 bits. kStored for all others, however they are
/// stored: their kernels hold no few bits. Not for runs in f32.
HeldAs held_form(const Graph& graph, const Node& node, std::string_view slot, HeldAs stored,
                 const RunSettings& settings);

/// Calls take(weight, slot) for every weight that the node reads, by its index.
void each_weight(const Graph& graph, const Node& node,
                 const std::function<void(std::size_t weight, std::string_view slot)>& take);
/// The same for all nodes.
void each_weight(
    const Graph& graph,
    const std::function<void(std::size_t weight, const Node& node, std::string_view slot)>& take);

}  // namespace firstlight
