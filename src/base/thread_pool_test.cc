#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>

namespace firstlight {
namespace {

TEST(ThreadPool, EveryThreadRunsOnceEachTime) {
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    std::vector<int> calls(static_cast<std::size_t>(threads), 0);
    for (int round = 0; round < 300; ++round) {
      pool.run([&](int thread) { ++calls[static_cast<std::size_t>(thread)]; });
    }
    for (const int c : calls) EXPECT_EQ(c, 300);
  }
}

TEST(ThreadPool, SmallWorkStaysOnTheCaller) {
  ThreadPool pool(3);
  const auto here = std::this_thread::get_id();
  std::set<int> seen;
  pool.run(10, [&](int thread) {
    EXPECT_EQ(std::this_thread::get_id(), here);
    seen.insert(thread);
  });
  EXPECT_EQ(seen, (std::set<int>{0, 1, 2}));
  std::atomic<int> elsewhere = 0;
  pool.run(ThreadPool::kWorthMeeting, [&](int) { elsewhere += std::this_thread::get_id() != here; });
  EXPECT_EQ(elsewhere, 2);
}

TEST(StaticRange, CoversEverythingOnce) {
  for (const std::int64_t count : {0, 1, 2, 7, 100}) {
    for (const int threads : {1, 2, 3, 8}) {
      std::int64_t next = 0;
      for (int t = 0; t < threads; ++t) {
        const Range r = static_range(count, t, threads);
        EXPECT_EQ(r.begin, next);
        EXPECT_LE(r.end - r.begin, count / threads + 1);
        next = r.end;
      }
      EXPECT_EQ(next, count);
    }
  }
}

}  // namespace
}  // namespace firstlight
