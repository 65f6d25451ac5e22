#include <gtest/gtest.h>

#include "ops/op_testing.h"
#include "ops/rms_norm/op.h"
#include "ops/rms_norm/reference.h"
#include "ops/shares.h"

namespace firstlight {
namespace {

using testing::Random;
using testing::TestOp;
using testing::TestSession;
using testing::Words;

constexpr double kEps = 1e-5;

TestOp make_op(std::int64_t width, Words weight) {
  TestOp op(rms_norm_contract(), make_rms_norm_cpu);
  op.value("x", width).weight("weight", {width}, std::move(weight)).set("eps", kEps);
  return op;
}

// A chain of width / 16 roundings, then a few more: 1e-6 is more than any width here needs.
constexpr double kTolerance = 1e-6;

TEST(RmsNorm, AgreesWithTheReferenceOnEveryInstructionSetWithTheSameBits) {
  Random random(1);
  for (const std::int64_t width : {1, 2, 15, 16, 17, 31, 64, 100, 576, 2304}) {
    for (const double scale : {1.0, 1e-12, 1e15}) {
      const Words w = random.normals(width);
      const Words x = random.normals(3 * width, scale);
      Words first;
      for (const Isa isa : available_isas()) {
        TestSession session(make_op(width, w), {.isa = isa});
        const std::size_t s = session.add({x});
        session.feed(s, {3});
        if (first.empty()) first = session.output(s);
        EXPECT_EQ(testing::differing_words(session.output(s), first), 0) << isa_name(isa) << " " << width;
      }
      for (std::int64_t r = 0; r < 3; ++r) {
        const auto at = [&](const Words& v) { return v.begin() + r * width; };
        const Words row(at(x), at(x) + width);
        EXPECT_LT(
            testing::relative_error(Words(at(first), at(first) + width), reference::rms_norm(row, w, kEps)),
            kTolerance)
            << width << " " << scale;
      }
    }
  }
}

TEST(RmsNorm, BitsDoNotDependOnRowsOrThreads) {
  Random random(2);
  constexpr std::int64_t kWidth = 4057;
  static_assert(9 * kWidth > kShareAlone);
  const Words w = random.normals(kWidth);
  const Words x = random.normals(9 * kWidth);
  TestSession one(make_op(kWidth, w), {});
  TestSession two(make_op(kWidth, w), {.threads = 2});
  one.feed(one.add({x}), {1, 1, 1, 1, 1, 1, 1, 1, 1});
  two.feed(two.add({x}), {9});
  EXPECT_EQ(testing::differing_words(one.output(0), two.output(0)), 0);
}

TEST(RmsNorm, HeadsAreRowsAndTheOffsetIsPartOfTheWeight) {
  Random random(3);
  for (const std::int64_t heads : {1, 3, 7}) {
    const std::int64_t width = random.between(1, 70);
    const Words w = random.normals(width);
    const Words x = random.normals(2 * heads * width);
    TestOp op(rms_norm_contract(), make_rms_norm_cpu);
    op.value("x", heads * width).weight("weight", {width}, w).set("eps", kEps);
    op.set("heads", heads).set("weight_offset", 1.0);
    TestSession session(op, {});
    session.feed(session.add({x}), {2});
    Words shifted;
    for (const float v : w) shifted.push_back(v + 1.0F);
    TestSession rows(make_op(width, shifted), {});
    rows.feed(rows.add({x}), {2 * heads});
    EXPECT_EQ(testing::differing_words(session.output(0), rows.output(0)), 0) << heads << " " << width;
  }
  TestOp wrong(rms_norm_contract(), make_rms_norm_cpu);
  wrong.value("x", 8).weight("weight", {8}, Words(8)).set("eps", kEps).set("heads", std::int64_t{2});
  ASSERT_FALSE(wrong.infer().ok());
  EXPECT_EQ(wrong.infer().error().message, "rms_norm: `x` has width 8, the weight has 8 for each of 2 heads");
}

TEST(RmsNorm, ARowOfZerosStaysZero) {
  TestSession session(make_op(20, Words(20, 1.0F)), {});
  session.feed(session.add({Words(20, 0.0F)}), {1});
  EXPECT_EQ(session.output(0), Words(20, 0.0F));
}

TEST(RmsNorm, NamesWhatIsWrong) {
  TestOp op(rms_norm_contract(), make_rms_norm_cpu);
  op.value("x", 8).weight("weight", {9}, Words(9)).set("eps", kEps);
  ASSERT_FALSE(op.infer().ok());
  EXPECT_EQ(op.infer().error().message, "rms_norm: `x` has width 8, the weight has 9");
  TestOp zero(rms_norm_contract(), make_rms_norm_cpu);
  zero.value("x", 8).weight("weight", {8}, Words(8)).set("eps", 0.0);
  ASSERT_FALSE(zero.infer().ok());
  EXPECT_EQ(zero.infer().error().message, "rms_norm: `eps` must be positive, it is 0");
}

}  // namespace
}  // namespace firstlight
