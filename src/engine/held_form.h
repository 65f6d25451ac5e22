// Which weights a run may hold in few bits: one answer for the memory plan and for `firstlight quantize`.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string_view>

#include "graph/graph.h"
#include "ops/settings.h"

namespace firstlight {

/// What is asked for the weight that `node` reads at `slot`: `experts` for the matrices of moe_experts,
/// `weights` for those of linear layers that are not computed in f32. None for all others: their kernels hold
/// no few bits, however the weight is stored.
std::optional<HeldAs> asked_form(const Graph& graph, const Node& node, std::string_view slot, HeldAs weights,
                                 HeldAs experts);

/// Calls take(weight, node, asked_form) for every weight that a node reads, by its index.
void each_asked_form(
    const Graph& graph, const RunSettings& settings,
    const std::function<void(std::size_t weight, const Node& node, std::optional<HeldAs> asked)>& take);

}  // namespace firstlight
