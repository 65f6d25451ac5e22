#include <gtest/gtest.h>

#include "ops/layer_norm/op.h"
#include "ops/layer_norm/reference.h"
#include "ops/op_testing.h"
#include "ops/shares.h"

namespace firstlight {
namespace {

using testing::Random;
using testing::TestOp;
using testing::TestSession;
using testing::Words;

constexpr double kEps = 1e-6;

TestOp make_op(std::int64_t width, Words weight, Words bias) {
  TestOp op(layer_norm_contract(), make_layer_norm_cpu);
  op.value("x", width)
      .weight("weight", {width}, std::move(weight))
      .weight("bias", {width}, std::move(bias))
      .set("eps", kEps);
  return op;
}

TEST(LayerNorm, AgreesWithTheReferenceOnEveryInstructionSetWithTheSameBits) {
  Random random(1);
  for (const std::int64_t width : {1, 2, 15, 16, 17, 31, 64, 100, 128, 1024}) {
    for (const double shift : {0.0, 1000.0}) {
      const Words w = random.normals(width);
      const Words b = random.normals(width);
      Words x = random.normals(3 * width);
      for (float& v : x) v += static_cast<float>(shift);
      Words first;
      for (const Isa isa : available_isas()) {
        TestSession session(make_op(width, w, b), {.isa = isa});
        const std::size_t s = session.add({x});
        session.feed(s, {3});
        if (first.empty()) first = session.output(s);
        EXPECT_EQ(testing::differing_words(session.output(s), first), 0) << isa_name(isa) << " " << width;
      }
      // The mean is rounded at its own size: an error of 2^-24 |mean| in every x - mean. Width 1 has no
      // variance, so 1 / sqrt(eps) magnifies it.
      const double tolerance = 1e-6 + (width == 1 ? 0 : 2e-7 * shift);
      for (std::int64_t r = 0; r < 3; ++r) {
        const auto at = [&](const Words& v) { return v.begin() + r * width; };
        const Words row(at(x), at(x) + width);
        EXPECT_LT(testing::relative_error(Words(at(first), at(first) + width),
                                          reference::layer_norm(row, w, b, kEps)),
                  tolerance)
            << width << " " << shift;
      }
    }
  }
}

TEST(LayerNorm, BitsDoNotDependOnRowsOrThreads) {
  Random random(2);
  constexpr std::int64_t kWidth = 4057;
  static_assert(9 * kWidth > kShareAlone);
  const Words w = random.normals(kWidth);
  const Words b = random.normals(kWidth);
  const Words x = random.normals(9 * kWidth);
  TestSession one(make_op(kWidth, w, b), {});
  TestSession two(make_op(kWidth, w, b), {.threads = 2});
  one.feed(one.add({x}), {1, 1, 1, 1, 1, 1, 1, 1, 1});
  two.feed(two.add({x}), {9});
  EXPECT_EQ(testing::differing_words(one.output(0), two.output(0)), 0);
}

TEST(LayerNorm, AConstantRowGivesTheBias) {
  Random random(3);
  const Words b = random.normals(20);
  TestSession session(make_op(20, Words(20, 2.0F), b), {});
  session.feed(session.add({Words(20, 4.0F)}), {1});
  EXPECT_EQ(session.output(0), b);
}

TEST(LayerNorm, NamesWhatIsWrong) {
  TestOp op(layer_norm_contract(), make_layer_norm_cpu);
  op.value("x", 8).weight("weight", {8}, Words(8)).weight("bias", {7}, Words(7)).set("eps", kEps);
  ASSERT_FALSE(op.infer().ok());
  EXPECT_EQ(op.infer().error().message, "layer_norm: `x` has width 8, the bias has 7");
}

}  // namespace
}  // namespace firstlight
