#include "base/zeroed_memory.h"

#include <sys/mman.h>

namespace firstlight {

std::byte* map_zeroed(std::int64_t bytes) {
  const auto map = [](std::int64_t size) -> std::byte* {
    void* p = mmap(nullptr, static_cast<std::size_t>(size), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? nullptr : static_cast<std::byte*>(p);
  };
  if (bytes < kHugePage) return map(bytes);
  if (bytes > INT64_MAX - kHugePage) return nullptr;
  std::byte* const p = map(bytes + kHugePage);
  if (p == nullptr) return nullptr;
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  const auto skip = static_cast<std::int64_t>((kHugePage - address % kHugePage) % kHugePage);
  unmap(p, skip);
  // The system gives back whole pages: the end of the last one stays with us.
  const std::int64_t page = 4096;
  const std::int64_t used = (bytes + page - 1) / page * page;
  unmap(p + skip + used, kHugePage - skip - (used - bytes));
  madvise(p + skip, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
  return p + skip;
}

void unmap(std::byte* memory, std::int64_t bytes) {
  if (bytes > 0) munmap(memory, static_cast<std::size_t>(bytes));
}

}  // namespace firstlight
