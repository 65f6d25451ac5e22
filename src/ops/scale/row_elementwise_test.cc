// scale, add_bias and sigmoid_scale: y[i] from x[i] and one number of the row, the head, the column or the
// whole.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/add_bias/op.h"
#include "ops/add_bias/reference.h"
#include "ops/scale/op.h"
#include "ops/scale/reference.h"
#include "ops/shares.h"
#include "ops/sigmoid_scale/op.h"
#include "ops/sigmoid_scale/reference.h"
#include "ops/step_testing.h"

namespace firstlight {
namespace {

using testing::Random;
using testing::TestOp;
using testing::Words;

TestOp scale_op(std::int64_t width, double factor) {
  TestOp op(scale_contract(), make_scale_cpu);
  op.value("x", width).set("factor", factor);
  return op;
}
TestOp add_bias_op(std::int64_t width, const Words& bias) {
  TestOp op(add_bias_contract(), make_add_bias_cpu);
  op.value("x", width).weight("bias", {static_cast<std::int64_t>(bias.size())}, bias);
  return op;
}
TestOp sigmoid_scale_op(std::int64_t width, std::int64_t gate = 1, std::int64_t heads = 1) {
  TestOp op(sigmoid_scale_contract(), make_sigmoid_scale_cpu);
  op.value("x", width).value("gate", gate).set("heads", heads);
  return op;
}

TEST(RowElementwise, AgreesWithTheReferenceHoweverItIsRun) {
  Random random(1);
  // 4099 columns: enough for two threads.
  for (const std::int64_t width : std::vector<std::int64_t>{1, 15, 16, 17, 100, kShareAlone / 4 + 3}) {
    constexpr std::int64_t kRows = 4;
    const Words x = random.normals(kRows * width, 3.0);
    const Words bias = random.normals(width);
    const Words gate = random.normals(kRows, 10.0);
    const Words scaled = testing::expect_rows_alone_decide(scale_op(width, 0.3), {x}, kRows)[0];
    const Words moved = testing::expect_rows_alone_decide(add_bias_op(width, bias), {x}, kRows)[0];
    const Words gated = testing::expect_rows_alone_decide(sigmoid_scale_op(width), {x, gate}, kRows)[0];
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t row = i / static_cast<std::size_t>(width);
      EXPECT_EQ(scaled[i], static_cast<float>(reference::scale(x[i], 0.3)));
      EXPECT_EQ(moved[i], static_cast<float>(reference::add_bias(x[i], bias[i % bias.size()])));
      EXPECT_NEAR(gated[i], reference::sigmoid_scale(x[i], gate[row]),
                  1e-6 * std::abs(reference::sigmoid_scale(x[i], gate[row])));
    }
  }
}

TEST(RowElementwise, AGateAHead) {
  Random random(2);
  for (const std::int64_t width : std::vector<std::int64_t>{1, 17, 128, kShareAlone / 9 + 3}) {
    constexpr std::int64_t kRows = 3;
    constexpr std::int64_t kHeads = 5;
    const Words x = random.normals(kRows * kHeads * width, 3.0);
    const Words gate = random.normals(kRows * kHeads, 10.0);
    const TestOp op = sigmoid_scale_op(kHeads * width, kHeads, kHeads);
    const Words y = testing::expect_rows_alone_decide(op, {x, gate}, kRows)[0];
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double expected = reference::sigmoid_scale(x[i], gate[i / static_cast<std::size_t>(width)]);
      EXPECT_NEAR(y[i], expected, 1e-6 * std::abs(expected));
    }
  }
}

TEST(RowElementwise, ExtremeGates) {
  const float infinity = HUGE_VALF;
  const auto y = testing::expect_rows_alone_decide(sigmoid_scale_op(2),
                                                   {{1, 2, 1, 2, 1, 2}, {-infinity, infinity, -200}}, 3)[0];
  EXPECT_EQ(y, (Words{0, 0, 1, 2, 0, 0}));
}

TEST(RowElementwise, NamesWhatIsWrong) {
  const auto message = [](const TestOp& op) {
    const auto types = op.infer();
    return types.ok() ? "accepted" : types.error().message;
  };
  EXPECT_EQ(message(add_bias_op(8, Words(9))), "add_bias: `x` has width 8, the bias has 9");
  EXPECT_EQ(message(scale_op(8, 1e60)), "scale: attribute `factor` must be finite, it is 1e+60");
  EXPECT_EQ(
      message(sigmoid_scale_op(8, 2)),
      "sigmoid_scale: `x` is f32[T, 8], `gate` is f32[T, 2], expected f32 rows and 1 f32 numbers a row, "
      "one a head");
  EXPECT_EQ(message(sigmoid_scale_op(8, 3, 3)),
            "sigmoid_scale: `x` has width 8, which `heads` = 3 does not divide");
  EXPECT_EQ(message(sigmoid_scale_op(8, 1, 0)),
            "sigmoid_scale: `x` has width 8, which `heads` = 0 does not divide");
}

}  // namespace
}  // namespace firstlight
