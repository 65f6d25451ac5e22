#include <gtest/gtest.h>

#include <cmath>

#include "ops/op_testing.h"
#include "ops/rope_angles/op.h"
#include "ops/rope_angles/reference.h"
#include "ops/rope_angles/sin_cos.h"

namespace firstlight {
namespace {

using testing::Random;
using testing::TestOp;
using testing::TestSession;
using testing::Words;

TestOp make_op(std::vector<double> frequencies, double scale = 1.0) {
  TestOp op(rope_angles_contract(), make_rope_angles_cpu);
  op.value("tokens", ValueType{DType::kI32, Rows::kTokens, {}});
  op.set("frequencies", std::move(frequencies)).set("scale", scale);
  return op;
}

TEST(RopeAngles, SineAndCosineOfDoubles) {
  Random random(1);
  for (int i = 0; i < 200000; ++i) {
    const double x = random.normal() * std::pow(10.0, static_cast<double>(random.between(-8, 7)));
    const SinCos v = sin_cos(x);
    ASSERT_NEAR(v.sin, std::sin(x), 1e-15) << x;
    ASSERT_NEAR(v.cos, std::cos(x), 1e-15) << x;
  }
  EXPECT_EQ(sin_cos(0.0).sin, 0.0);
  EXPECT_EQ(sin_cos(0.0).cos, 1.0);
}

TEST(RopeAngles, FollowsPositionsInAnyCutsAndMixtures) {
  const std::vector<double> frequencies = {1.0, 0.31, 1e-3, -0.5, 63.0};
  const TestOp op = make_op(frequencies, 1.25);
  TestSession session(op, {.threads = 2});
  const std::size_t a = session.add({Words(100)});
  const std::size_t b = session.add({Words(40)});
  session.feed(a, {1, 30});
  session.step({{b, 7}, {a, 69}});
  session.feed(b, {33});
  for (const auto& [sequence, rows] : {std::pair{a, 100}, std::pair{b, 40}}) {
    for (std::int64_t p = 0; p < rows; ++p) {
      const std::vector<double> want = reference::rope_angles(p, frequencies, 1.25);
      for (std::size_t i = 0; i < want.size(); ++i) {
        const float got = session.output(sequence)[static_cast<std::size_t>(p) * want.size() + i];
        ASSERT_NEAR(got, want[i], 1.25 * 6e-8) << p << " " << i;
      }
    }
  }
}

TEST(RopeAngles, NamesWhatIsWrong) {
  const auto message = [](const TestOp& op) {
    const auto types = op.infer();
    return types.ok() ? "accepted" : types.error().message;
  };
  EXPECT_EQ(message(make_op({0.5})), "accepted");
  EXPECT_EQ(message(make_op({})), "rope_angles: attribute `frequencies` has 0 entries, expected 1 to 32768");
  EXPECT_EQ(message(make_op({1.0, NAN})),
            "rope_angles: attribute `frequencies` holds nan, expected radians a token within 64");
  EXPECT_EQ(message(make_op({1.0}, 1e300)), "rope_angles: attribute `scale` must be finite, it is 1e+300");
}

}  // namespace
}  // namespace firstlight
