// Passes over a graph. Each can be switched off and changes no bit of any result.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/graph.h"

namespace firstlight {

/// Checks every node's shape rule again and that each value is produced before it is used. Run after passes.
Status verify_graph(const Graph& graph);

/// Fuses `linear` nodes that read the same input at the same precision into one node with several weights:
/// the rows are converted once, and the threads meet once. Every output stays the same chain over K.
/// Returns how many nodes were removed.
int fuse_linears(Graph& graph);

/// Bytes of values a row that the node would read besides if it were not fused: all its weights share one
/// input.
std::int64_t saved_bytes(const Graph& graph, const Node& node);

/// When each value lives, in node indices; `last` is inclusive.
struct Lifetime {
  std::int64_t bytes = 0;
  std::int32_t first = 0;
  std::int32_t last = 0;
};

/// Offsets of buffers in one arena, such that values alive at the same time do not overlap.
struct BufferPlan {
  std::vector<std::int64_t> offsets;  // by lifetime index; 64-byte aligned
  std::int64_t bytes = 0;
};
BufferPlan plan_buffers(std::span<const Lifetime> lifetimes);

}  // namespace firstlight
