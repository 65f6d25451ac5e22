// Deals independent items to threads.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"

namespace firstlight {

/// Elements of work that the caller does alone: about three microseconds of sums in cache, where a meeting of
/// the threads takes five to ten.
inline constexpr std::int64_t kShareAlone = 32768;

/// Calls body(begin, end) for contiguous shares of [0, count) on the threads of the pool; at once on the
/// caller when all of it together is less than the barrier costs. `elements`: of one item.
template <class Body>
void each_share(ThreadPool& pool, std::int64_t count, std::int64_t elements, const Body& body) {
  if (count * elements <= kShareAlone) {
    if (count > 0) body(std::int64_t{0}, count);
    return;
  }
  pool.run([&](int thread) {
    const Range share = static_range(count, thread, pool.threads());
    if (share.begin < share.end) body(share.begin, share.end);
  });
}

}  // namespace firstlight
