// Settings that a run was given and that would change nothing.
#pragma once

#include <span>

#include "base/result.h"
#include "graph/graph.h"
#include "ops/settings.h"

namespace firstlight {

/// An error that names a setting which contradicts another one, or which another one leaves without effect,
/// whatever the model is. `f32`: the run's mode.
Status check_together(const RunSettings& settings, bool f32);

/// An error that names a setting which differs from its default and has no effect on this model. `held`: what
/// each weight of the graph is held as; in f32 runs kStored.
Status check_effect(const Graph& graph, const RunSettings& settings, std::span<const HeldAs> held);

}  // namespace firstlight
