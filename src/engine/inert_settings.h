// Settings that a run was given and that would change nothing.
#pragma once

#include <functional>

#include "base/result.h"
#include "graph/graph.h"
#include "ops/settings.h"

namespace firstlight {

/// An error that names a setting which differs from its default and has no effect on this model. `stored`:
/// the form in which the checkpoint has a weight, by its index.
Status check_effect(const Graph& graph, const RunSettings& settings, bool f32,
                    const std::function<HeldAs(std::size_t weight)>& stored);

}  // namespace firstlight
