// The lightning indexer of DeepSeek Sparse Attention: which positions a query attends.
#pragma once

#include <memory>

#include "ops/contract.h"
#include "ops/kernel.h"

namespace firstlight {

const OpContract& dsa_index_contract();
/// Cost of rows that are searched by the exact scores of all keys, of which no bytes are kept.
Cost dsa_full_cost(const NodeSpec& node, const StepShape& step);
/// Cost of rows that are searched in two stages (README.md): the means of all pages, then the best
/// `candidates` tokens' pages and three more.
Cost dsa_two_stage_cost(const NodeSpec& node, const StepShape& step, std::int64_t candidates);
Result<std::unique_ptr<Kernel>> make_dsa_index_cpu(const KernelContext& context);

/// Lanes of a page's byte keys: one a token (or pool of `kpool` tokens), whole vectors of 16.
constexpr std::int64_t dsa_index_lanes(std::int64_t kpool) { return (kPageTokens / kpool + 15) / 16 * 16; }
/// Elements of an exact key: two channels are multiplied at once.
constexpr std::int64_t dsa_index_key_elements(std::int64_t dim) { return (dim + 1) / 2 * 2; }
/// Bytes of a key's channels: four channels lie together.
constexpr std::int64_t dsa_index_key_bytes(std::int64_t dim) { return (dim + 3) / 4 * 4; }

}  // namespace firstlight
