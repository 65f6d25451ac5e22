#include "ops/linear/pack_weight.h"

#include <gtest/gtest.h>

#include <set>

#include "ops/linear/op.h"

namespace firstlight {
namespace {

/// Row r is filled with r; the rows of `bad` cannot be read.
class Rows final : public WeightSource {
 public:
  Rows(std::string name, Shape shape, std::set<std::int64_t> bad = {})
      : name_(std::move(name)), shape_(std::move(shape)), bad_(std::move(bad)) {}

  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] const Shape& shape() const override { return shape_; }
  [[nodiscard]] bool exact_in_bf16() const override { return false; }
  Status read_rows(std::int64_t begin, std::int64_t count, float* out) const override {
    for (std::int64_t r = begin; r < begin + count; ++r, out += shape_[1]) {
      if (bad_.contains(r)) return Error{name_ + ": row " + std::to_string(r)};
      std::fill_n(out, shape_[1], static_cast<float>(r));
    }
    return {};
  }
  void release() const override { ++released; }

  mutable int released = 0;

 private:
  std::string name_;
  Shape shape_;
  std::set<std::int64_t> bad_;
};

/// Packs both, as a kernel of some node would.
Result<PackedMatrix> pack_both(const Rows& a, const Rows& b, ThreadPool* pool) {
  const NodeSpec node(linear_contract(), {}, {});
  const KernelContext context{.node = node,
                              .weights = {},
                              .caches = {},
                              .limits = {},
                              .threads = pool == nullptr ? 1 : pool->threads(),
                              .pool = pool};
  return pack_together({&a, &b}, context, HeldAs::kStored);
}

TEST(PackWeight, ThreadsChangeNothingAndTheFileIsLetGoOf) {
  const Rows a("a", {100, 7});
  const Rows b("b", {33, 7});
  const auto alone = pack_both(a, b, nullptr);
  ASSERT_TRUE(alone.ok()) << alone.error().message;
  for (const int threads : {2, 3, 5}) {
    ThreadPool pool(threads);
    const auto together = pack_both(a, b, &pool);
    ASSERT_TRUE(together.ok());
    for (std::int64_t n = 0; n < 133; ++n) {
      for (std::int64_t k = 0; k < 7; ++k) ASSERT_EQ(together->at(n, k), alone->at(n, k));
    }
  }
  EXPECT_EQ(a.released, 4);
  EXPECT_EQ(b.released, 4);
}

TEST(PackWeight, TheFirstRowThatCannotBeReadIsReported) {
  const Rows good("good", {100, 7});
  const Rows bad("bad", {100, 7}, {90, 41, 99});
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    const auto after = pack_both(good, bad, &pool);
    ASSERT_FALSE(after.ok());
    EXPECT_EQ(after.error().message, "bad: row 41");
    const Rows worse("worse", {100, 7}, {99});
    EXPECT_EQ(pack_both(worse, bad, &pool).error().message, "worse: row 99");
  }
}

}  // namespace
}  // namespace firstlight
