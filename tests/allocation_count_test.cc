#include "allocation_count.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>

namespace {
std::atomic<std::int64_t> count = 0;
}

// The standard demands that all forms be replaced together.
void* operator new(std::size_t size) {
  ++count;
  if (void* p = std::malloc(size == 0 ? 1 : size)) return p;
  throw std::bad_alloc();
}
void* operator new[](std::size_t size) { return operator new(size); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }

namespace firstlight::testing {

std::int64_t allocation_count() { return count; }

TEST(AllocationCount, SeesAnAllocation) {
  const std::int64_t before = allocation_count();
  const auto number = std::make_unique<int>(3);
  EXPECT_EQ(*number, 3);
  EXPECT_GT(allocation_count(), before);
}

}  // namespace firstlight::testing
