// Everything that the bytes of packed weights depend on, as lines of text: equal texts, equal bytes.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "checkpoint/weights.h"
#include "graph/graph.h"
#include "ops/settings.h"

namespace firstlight {

/// The version of the packing, the form of the run, the graph, what of which tensor each weight is, and the
/// files: name, size, time of the last change, digest of the header.
std::string packed_key(const Graph& graph, const Checkpoint& checkpoint, std::span<const WeightData> weights,
                       bool f32, const RunSettings& settings);

/// The form of the run in a few words that can stand in a file's name: "bf16", "int8", "int8-experts-mxfp4".
std::string form_name(bool f32, const RunSettings& settings);

/// The first line of `kept` that `key` has not, as it can be shown: why what was kept is of no use. None when
/// they are equal.
std::optional<std::string> difference(std::string_view kept, std::string_view key);

}  // namespace firstlight
