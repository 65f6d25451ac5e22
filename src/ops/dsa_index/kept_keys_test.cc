#include "ops/dsa_index/kept_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <vector>

namespace firstlight {
namespace {

using Numbers = std::vector<std::int32_t>;

/// Numbers of several kinds: spread over everything, over little with many ties, or the ends themselves.
Numbers some_numbers(std::mt19937& random, std::size_t count) {
  const auto kind = random() % 3;
  Numbers x(count);
  for (std::int32_t& v : x) {
    const auto bits = static_cast<std::int32_t>(random());
    v = kind == 0 ? bits : kind == 1 ? bits % 50 : bits % 2 == 0 ? INT32_MIN : INT32_MAX;
  }
  return x;
}

TEST(KeptKeys, LimitsAreThoseOfSortedNumbersWhateverIsLikely) {
  std::mt19937 random(7);
  for (int i = 0; i < 3000; ++i) {
    Numbers x = some_numbers(random, 1 + random() % 300);
    const auto size = static_cast<std::int64_t>(x.size());
    const auto k = static_cast<std::int64_t>(1 + random() % static_cast<std::size_t>(size));
    const auto slack = static_cast<std::int64_t>(random() % 20);
    LikelyLimits likely{static_cast<std::int32_t>(random()), static_cast<std::int32_t>(random())};
    if (random() % 2 == 0) likely = {x[random() % x.size()], x[random() % x.size()]};
    int counted = 0;
    const auto reached = [&](std::int32_t t) {
      ++counted;
      return std::int64_t{std::ranges::count_if(x, [&](std::int32_t v) { return v >= t; })};
    };
    Numbers sorted = x;
    std::ranges::sort(sorted, std::greater());
    const std::int32_t kth = sorted[static_cast<std::size_t>(k - 1)];

    const std::int32_t exact = best_limit(k, 0, reached, INT32_MIN, INT32_MAX, likely);
    EXPECT_EQ(reached(exact), reached(kth)) << "the same numbers reach it";
    const std::int32_t out = best_limit(k, slack, reached, INT32_MIN, INT32_MAX, likely);
    EXPECT_GE(reached(out), k);
    EXPECT_TRUE(out == kth || reached(out) <= k + slack || reached(out) == reached(kth));
    const std::int32_t in = limit_above(k, slack, reached, out, likely);
    EXPECT_GE(in, out);
    EXPECT_GE(in, kth);
    if (in < INT32_MAX) {
      EXPECT_LT(reached(in + 1), k);
    }
    EXPECT_LE(counted, 3 * (2 + 2 * 33) + 12);
  }
}

}  // namespace
}  // namespace firstlight
