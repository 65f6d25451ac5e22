// What a step has to do at least, node by node: from the operators' contracts and the bytes that the kernels
// really hold and the step reads of them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/model.h"
#include "ops/contract.h"

namespace firstlight {

/// The instruction that bounds a node's arithmetic.
enum class Arith : std::uint8_t { kF32, kBF16, kInt8, kInt8Wide };  // wide: two products of bytes each

struct NodeCost {
  Cost cost;  // weight_bytes as the kernel holds them, not as bf16
  Arith arith = Arith::kF32;
  bool reads_context = false;  // its caches grow with the context: attention and its indexer
};

/// Work of one step of `streams` sequences that bring `rows` rows each and have `context` tokens before
/// them, of a `prompt` or generated; logits of the last row of each if `sampled`. `distinct_experts`, by
/// node, is how many different experts the step's rows chose there; empty: what is expected of random
/// choices.
std::vector<NodeCost> step_costs(const Model& model, std::int64_t streams, std::int64_t rows,
                                 std::int64_t context, bool prompt, bool sampled,
                                 std::span<const double> distinct_experts = {});

/// "linear (mlp)": the operator and the last part of its scope, which many layers share.
std::string node_kind(const Node& node);

}  // namespace firstlight
