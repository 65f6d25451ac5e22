// The weights of a checkpoint as a graph asks for them, and as its operators see them.
#pragma once

#include <functional>
#include <memory>

#include "checkpoint/weights.h"
#include "graph/graph.h"
#include "ops/kernel.h"

namespace firstlight {

/// All that the graph declares, in its order; every tensor of the checkpoint is accounted for.
Result<BoundWeights> bind_graph(const Graph& graph, const Checkpoint& checkpoint);

/// `released` is called when a kernel has taken what it needs of the weight.
std::unique_ptr<WeightSource> make_weight_source(WeightData data,
                                                 std::function<void(const WeightData&)> released);

}  // namespace firstlight
