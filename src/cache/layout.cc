#include "cache/layout.h"

namespace firstlight {

CacheLayout make_cache_layout(std::span<const std::vector<CacheSpec>> caches, bool f32) {
  constexpr std::int64_t kAlign = 64;  // a cache line, and an AVX-512 register
  CacheLayout layout;
  for (const std::vector<CacheSpec>& declared : caches) {
    std::vector<CacheSlot>& slots = layout.nodes.emplace_back();
    for (const CacheSpec& spec : declared) {
      const DType dtype = storage_dtype(spec.storage, f32);
      std::int64_t& end = spec.scope == CacheSpec::Scope::kPerPage ? layout.page_bytes : layout.state_bytes;
      slots.push_back({.spec = spec, .offset = end, .dtype = dtype});
      const std::int64_t bytes = spec.elements * static_cast<std::int64_t>(dtype_size(dtype));
      end += (bytes + kAlign - 1) / kAlign * kAlign;
    }
  }
  return layout;
}

}  // namespace firstlight
