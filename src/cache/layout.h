// Where each operator's caches lie: derived from the contracts' declarations, known to nobody else.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "ops/contract.h"

namespace firstlight {

/// Place of one declared cache, in bytes from the start of its page or state block.
struct CacheSlot {
  CacheSpec spec;
  std::int64_t offset = 0;
  DType dtype = DType::kF32;
};

struct CacheLayout {
  std::vector<std::vector<CacheSlot>> nodes;  // by node, in the order of the contract's declaration
  std::int64_t page_bytes = 0;                // of kPageTokens tokens, all layers
  std::int64_t state_bytes = 0;               // of one sequence, all layers
};

/// `caches`: the declarations of each node. `f32`: the run's mode (see CacheSpec::Storage).
CacheLayout make_cache_layout(std::span<const std::vector<CacheSpec>> caches, bool f32);

}  // namespace firstlight
