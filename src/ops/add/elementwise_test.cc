// add, gelu_mul, silu_mul, situ_mul and sigmoid_mul: y[i] from a[i] and b[i] alone.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <ostream>
#include <string>

#include "ops/add/op.h"
#include "ops/add/reference.h"
#include "ops/gelu_mul/op.h"
#include "ops/gelu_mul/reference.h"
#include "ops/shares.h"
#include "ops/sigmoid_mul/op.h"
#include "ops/sigmoid_mul/reference.h"
#include "ops/silu_mul/op.h"
#include "ops/silu_mul/reference.h"
#include "ops/situ_mul/op.h"
#include "ops/situ_mul/reference.h"
#include "ops/step_testing.h"

namespace firstlight {
namespace {

using testing::Random;
using testing::StepKernel;
using testing::TestOp;
using testing::Words;

/// An operator with its attributes set.
struct Operator {
  std::string name;
  const OpContract& (*contract)() = nullptr;
  MakeKernel make = nullptr;
  double (*reference)(float a, float b) = nullptr;
  std::map<std::string, Attribute> attributes = {};
  double relative = 1.5e-6;  // two tanh and a sigmoid of 3e-7 each, and five roundings

  [[nodiscard]] TestOp op(const ValueType& a, const ValueType& b) const {
    TestOp op(contract(), make);
    op.value(contract().inputs[0].name, a).value(contract().inputs[1].name, b);
    for (const auto& [key, value] : attributes) op.set(key, value);
    return op;
  }
  [[nodiscard]] TestOp op(std::int64_t width, Rows rows = Rows::kTokens) const {
    const ValueType type{DType::kF32, rows, {width}};
    return this->op(type, type);
  }
};

template <int kQuarters, int kLinear>
double situ_reference(float gate, float up) {
  return reference::situ_mul(gate, up, 0.25 * kQuarters, kLinear);
}

std::map<std::string, Attribute> situ_limits(double beta, double linear_beta) {
  return {{"beta", beta}, {"linear_beta", linear_beta}};
}

const Operator kAdd{"add", add_contract, make_add_cpu, reference::add};
const Operator kSiluMul{"silu_mul", silu_mul_contract, make_silu_mul_cpu,
                        [](float gate, float up) { return reference::silu_mul(gate, up); }};
// The argument of the exponential reaches 100 and is rounded.
const Operator kGeluMul{"gelu_mul",
                        gelu_mul_contract,
                        make_gelu_mul_cpu,
                        [](float gate, float up) { return reference::gelu_mul(gate, up); },
                        {},
                        2e-5};
const Operator kSigmoidMul{"sigmoid_mul", sigmoid_mul_contract, make_sigmoid_mul_cpu, reference::sigmoid_mul};
const Operator kSituMul{"situ_mul", situ_mul_contract, make_situ_mul_cpu, situ_reference<16, 25>,
                        situ_limits(4.0, 25.0)};
const Operator kSituMulUnlimited{"situ_mul_unlimited", situ_mul_contract, make_situ_mul_cpu,
                                 situ_reference<3, 0>, situ_limits(0.75, 0.0)};

/// How a failing case is printed.
void PrintTo(const Operator& o, std::ostream* out) { *out << o.name; }

class ElementwiseTest : public ::testing::TestWithParam<Operator> {};

void expect_near(float got, double want, float a, float b, double relative) {
  const double largest = std::numeric_limits<float>::max();
  const bool finite = std::isfinite(a) && std::isfinite(b);
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(got)) << a << ", " << b << ": " << got;
    return;
  }
  if (std::abs(want) > largest * (1 + relative)) {
    // Infinity times a factor that is 0 as an f32 is NaN.
    const bool vanished = !finite && std::isnan(got);
    EXPECT_TRUE(got == static_cast<float>(std::copysign(HUGE_VAL, want)) || vanished)
        << a << ", " << b << ": " << got << " not " << want;
    return;
  }
  // A factor among the denormals is off by up to one of them, times the others; an infinite input enters a
  // finite result as a limit of at most 25.
  const auto factor = [](float x) { return std::isfinite(x) ? 1.0 + std::abs(x) : 25.0; };
  EXPECT_LE(std::abs(got - want), relative * std::abs(want) + 0x1p-147 * factor(a) * factor(b))
      << a << ", " << b << ": " << got << " not " << want;
}

void expect_reference(const Operator& o, const Words& a, const Words& b, const Words& y) {
  ASSERT_EQ(y.size(), a.size());
  for (std::size_t i = 0; i < y.size(); ++i)
    expect_near(y[i], o.reference(a[i], b[i]), a[i], b[i], o.relative);
}

TEST_P(ElementwiseTest, AgreesWithTheReferenceHoweverItIsRun) {
  Random random(1);
  for (const std::int64_t width : {1, 2, 15, 16, 17, 33, 100}) {
    for (const std::int64_t rows : {1, 2, 7}) {
      const Words a = random.normals(rows * width, 3.0);
      const Words b = random.normals(rows * width, 20.0);
      const auto y = testing::expect_rows_alone_decide(GetParam().op(width), {a, b}, rows, rows != 2);
      expect_reference(GetParam(), a, b, y[0]);
    }
  }
}

TEST_P(ElementwiseTest, LargeStepsAreSharedByThreads) {
  Random random(2);
  constexpr std::int64_t kRows = 3;
  constexpr std::int64_t kWidth = 11003;  // the second thread begins in the middle of a block
  static_assert(kRows * kWidth > kShareAlone);
  const Words a = random.normals(kRows * kWidth);
  const Words b = random.normals(kRows * kWidth);
  const auto y = testing::expect_rows_alone_decide(GetParam().op(kWidth, Rows::kSampled), {a, b}, kRows);
  expect_reference(GetParam(), a, b, y[0]);
}

TEST_P(ElementwiseTest, ExtremeValues) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {0.0F,      -0.0F,      1e-45F, -1e-45F, 1e-38F,       0.6F,
                                     -0.625F,   1.0F,       -17.0F, 87.0F,   -88.0F,       89.0F,
                                     -100.0F,   -104.0F,    1e4F,   -1e4F,   3.402823e38F, -3.402823e38F,
                                     kInfinity, -kInfinity, NAN};
  Words a;
  Words b;
  for (const float x : values) {
    for (const float y : values) {
      a.push_back(x);
      b.push_back(y);
    }
  }
  const auto width = static_cast<std::int64_t>(values.size());
  const auto y = testing::expect_rows_alone_decide(GetParam().op(width), {a, b}, width);
  expect_reference(GetParam(), a, b, y[0]);
}

TEST_P(ElementwiseTest, AStepMayHaveNoRows) {
  StepKernel kernel(GetParam().op(5), {});
  EXPECT_TRUE(kernel.run_rows({{}, {}}, 0)[0].empty());
}

TEST_P(ElementwiseTest, NamesWhatDiffers) {
  const Operator& o = GetParam();
  const std::string op(o.contract().name);
  const std::string a(o.contract().inputs[0].name);
  const std::string b(o.contract().inputs[1].name);
  const ValueType f32{DType::kF32, Rows::kTokens, {8}};
  const auto message = [&](const ValueType& x, const ValueType& y) {
    const auto types = o.op(x, y).infer();
    return types.ok() ? "accepted" : types.error().message;
  };
  EXPECT_EQ(message(f32, f32), "accepted");
  const std::string end = ", both must be the same f32 rows";
  EXPECT_EQ(message(f32, {DType::kF32, Rows::kTokens, {9}}),
            op + ": `" + a + "` is f32[T, 8], `" + b + "` is f32[T, 9]" + end);
  EXPECT_EQ(message({DType::kF32, Rows::kSampled, {8}}, f32),
            op + ": `" + a + "` is f32[R, 8], `" + b + "` is f32[T, 8]" + end);
  const ValueType i32{DType::kI32, Rows::kTokens, {8}};
  EXPECT_EQ(message(i32, i32), op + ": `" + a + "` is i32[T, 8], `" + b + "` is i32[T, 8]" + end);
}

INSTANTIATE_TEST_SUITE_P(Elementwise, ElementwiseTest,
                         ::testing::Values(kAdd, kGeluMul, kSiluMul, kSigmoidMul, kSituMul,
                                           kSituMulUnlimited),
                         [](const auto& tested) { return tested.param.name; });

TEST(SituMul, NamesALimitThatIsNone) {
  const auto message = [](double beta, double linear_beta) {
    Operator o = kSituMul;
    o.attributes = situ_limits(beta, linear_beta);
    const auto types = o.op(8).infer();
    return types.ok() ? "accepted" : types.error().message;
  };
  EXPECT_EQ(message(4.0, 0.0), "accepted");
  EXPECT_EQ(message(0.0, 25.0), "situ_mul: attribute `beta` must be positive, it is 0");
  // 0 once it is an f32.
  EXPECT_EQ(message(1e-60, 25.0), "situ_mul: attribute `beta` must be positive, it is 1e-60");
  EXPECT_EQ(message(1e60, 25.0), "situ_mul: attribute `beta` must be positive, it is 1e+60");
  EXPECT_EQ(message(NAN, 25.0), "situ_mul: attribute `beta` must be positive, it is nan");
  EXPECT_EQ(message(4.0, -1.0),
            "situ_mul: attribute `linear_beta` must be positive or 0 (unlimited), it is -1");
  EXPECT_EQ(message(4.0, 1e-60),
            "situ_mul: attribute `linear_beta` must be positive or 0 (unlimited), it is 1e-60");
}

}  // namespace
}  // namespace firstlight
