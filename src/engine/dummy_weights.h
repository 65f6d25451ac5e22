// Weights that no file holds: random numbers made on the fly, to measure a model from its config.json alone.
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "graph/graph.h"
#include "ops/kernel.h"

namespace firstlight {

/// One source for each of the graph's weights. A number depends on the weight's label and its place, and on
/// nothing else. Sizes are chosen by what reads a weight: matrices [N, K] have variance 1/K, so that
/// activations stay near 1 and routers spread their choices; factors of norms lie near 1; decay rates and
/// biases lie where published models have them.
///
/// Matrices that a checkpoint of the graph's quantization would hold packed lie on its grid (see is_packed):
/// 4-bit codes times the scale of a group. All values are exact in bf16. An Error names an entry of
/// quantization_config that cannot be read.
Result<std::vector<std::unique_ptr<WeightSource>>> make_dummy_weights(const Graph& graph);

}  // namespace firstlight
