#include <gtest/gtest.h>

#include "ops/gated_norm/op.h"
#include "ops/gated_norm/reference.h"
#include "ops/op_testing.h"
#include "ops/shares.h"

namespace firstlight {
namespace {

using testing::Random;
using testing::TestOp;
using testing::TestSession;
using testing::Words;

constexpr double kEps = 1e-5;

TestOp make_op(std::int64_t heads, std::int64_t width, Words weight, bool silu = false) {
  TestOp op(gated_norm_contract(), make_gated_norm_cpu);
  op.value("x", heads * width)
      .value("gate", heads * width)
      .weight("weight", {width}, std::move(weight))
      .set("heads", heads)
      .set("eps", kEps);
  if (silu) op.set("activation", std::string("silu"));
  return op;
}

TEST(GatedNorm, AgreesWithTheReferenceOnEveryInstructionSetWithTheSameBits) {
  Random random(1);
  for (const std::int64_t width : {1, 2, 15, 16, 17, 40, 128}) {
    for (const auto& [gate_scale, silu] : {std::pair{1.0, false}, {40.0, false}, {1.0, true}, {40.0, true}}) {
      // 40: gates open, shut, and shut to the denormals
      const std::int64_t heads = random.between(1, 5);
      const Words w = random.normals(width);
      const Words x = random.normals(2 * heads * width);
      const Words gate = random.normals(2 * heads * width, gate_scale);
      Words first;
      for (const Isa isa : available_isas()) {
        TestSession session(make_op(heads, width, w, silu), {.isa = isa});
        const std::size_t s = session.add({x, gate});
        session.feed(s, {2});
        if (first.empty()) first = session.output(s);
        EXPECT_EQ(testing::differing_words(session.output(s), first), 0) << isa_name(isa) << " " << width;
      }
      for (std::int64_t h = 0; h < 2 * heads; ++h) {
        const auto head = [&](const Words& v) {
          return Words(v.begin() + h * width, v.begin() + (h + 1) * width);
        };
        const std::vector<double> expected = reference::gated_norm(head(x), head(gate), w, kEps, silu);
        EXPECT_LT(testing::relative_error(head(first), expected), 1e-6) << width << " " << gate_scale;
      }
    }
  }
}

TEST(GatedNorm, BitsDoNotDependOnRowsOrThreads) {
  Random random(2);
  constexpr std::int64_t kWidth = 1601;
  static_assert(7 * 3 * kWidth > kShareAlone);
  const Words w = random.normals(kWidth);
  const Words x = random.normals(7 * 3 * kWidth);
  const Words gate = random.normals(7 * 3 * kWidth);
  for (const bool silu : {false, true}) {
    TestSession one(make_op(3, kWidth, w, silu), {});
    TestSession two(make_op(3, kWidth, w, silu), {.threads = 2});
    one.feed(one.add({x, gate}), {1, 1, 1, 1, 1, 1, 1});
    two.feed(two.add({x, gate}), {7});
    EXPECT_EQ(testing::differing_words(one.output(0), two.output(0)), 0);
  }
}

TEST(GatedNorm, NamesWhatIsWrong) {
  TestOp op(gated_norm_contract(), make_gated_norm_cpu);
  op.value("x", 8).value("gate", 8).weight("weight", {8}, Words(8)).set("heads", std::int64_t{3});
  op.set("eps", kEps);
  ASSERT_FALSE(op.infer().ok());
  EXPECT_EQ(op.infer().error().message, "gated_norm: `x` has width 8, which `heads` = 3 does not divide");
  op.set("heads", std::int64_t{1}).set("activation", std::string("tanh"));
  EXPECT_EQ(op.infer().error().message,
            "gated_norm: `activation` is \"tanh\", known are \"sigmoid\" and \"silu\"");
}

}  // namespace
}  // namespace firstlight
