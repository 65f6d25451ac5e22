#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>

#include "base/dtype.h"
#include "ops/linear/op.h"
#include "ops/linear/pack_weight.h"
#include "ops/linear/reference.h"
#include "ops/step_testing.h"

namespace firstlight {
namespace {

using testing::differing_words;
using testing::Random;
using testing::StepKernel;
using testing::TestOp;
using testing::TestSettings;
using testing::Words;

Words in_bf16(Words words) {
  for (float& v : words) v = bf16_to_f32(f32_to_bf16(v));
  return words;
}

struct Matrix {
  std::int64_t rows = 1;  // N
  Words data;             // [N, K]
  bool exact = false;     // every element is exact in bf16
};

Matrix random_matrix(Random& random, std::int64_t n, std::int64_t k, bool exact, double scale = 1.0) {
  const Words data = random.normals(n * k, scale);
  return {n, exact ? in_bf16(data) : data, exact};
}

TestOp make_op(std::int64_t k, const std::vector<Matrix>& weights, const std::string& precision = "model",
               Rows rows = Rows::kTokens) {
  TestOp op(linear_contract(), make_linear_cpu);
  op.value("x", ValueType{DType::kF32, rows, {k}}).set("precision", precision);
  for (const Matrix& w : weights) op.weight("weight", {w.rows, k}, w.data, w.exact);
  return op;
}

/// A chain of K fused steps, each rounding to 24 bits: off by at most K 2^-24 of the sum of sizes, to first
/// order.
void expect_reference(const Words& x, const Words& w, const Words& y) {
  const std::vector<double> want = reference::linear(x, w);
  const std::vector<double> size = reference::linear_size(x, w);
  ASSERT_EQ(y.size(), want.size());
  const double chain = 1.01 * 0x1p-24 * static_cast<double>(x.size());
  for (std::size_t n = 0; n < y.size(); ++n) {
    EXPECT_LE(std::abs(y[n] - want[n]), chain * size[n]) << "output " << n << ", K " << x.size();
  }
}

TEST(Linear, AgreesWithTheReferenceHoweverItIsRun) {
  Random random(1);
  struct Size {
    std::int64_t n, k, rows;
  };
  // One row, one column, one channel; odd pairs of k; panels of 32 not full; row blocks of 12 not full.
  for (const Size& size : {Size{1, 1, 1}, Size{1, 40, 3}, Size{33, 1, 2}, Size{31, 17, 13}, Size{65, 130, 5},
                           Size{70, 33, 25}}) {
    for (const bool exact : {false, true}) {
      for (const bool f32 : {true, false}) {
        for (const std::string precision : {"model", "f32"}) {
          const double scale = exact ? 1e-3 : 1e3;
          const Matrix w = random_matrix(random, size.n, size.k, exact, scale);
          const Words x = random.normals(size.rows * size.k, scale);
          const auto y =
              testing::expect_rows_alone_decide(make_op(size.k, {w}, precision), {x}, size.rows, f32);
          const bool rounds = !f32 && precision == "model";
          for (std::int64_t r = 0; r < size.rows; ++r) {
            const Words row = testing::rows_of(x, size.rows, r, 1);
            expect_reference(rounds ? in_bf16(row) : row, rounds ? in_bf16(w.data) : w.data,
                             testing::rows_of(y[0], size.rows, r, 1));
          }
        }
      }
    }
  }
}

TEST(Linear, AListOfWeightsGivesTheBitsOfEachAlone) {
  Random random(2);
  constexpr std::int64_t kDepth = 45;
  // Some exact in bf16 and some not: in f32 mode x is prepared for each kind.
  const std::vector<std::vector<bool>> lists = {
      {false, false}, {true, true}, {true, false, true}, {false, true}};
  for (const std::vector<bool>& exact : lists) {
    std::vector<Matrix> weights;
    for (const bool e : exact) weights.push_back(random_matrix(random, random.between(1, 70), kDepth, e));
    for (const std::int64_t rows : {1, 12, 13, 30}) {
      const Words x = random.normals(rows * kDepth);
      for (const bool f32 : {true, false}) {
        for (const std::string precision : {"model", "f32"}) {
          const auto together =
              testing::expect_rows_alone_decide(make_op(kDepth, weights, precision), {x}, rows, f32);
          ASSERT_EQ(together.size(), weights.size());
          for (std::size_t i = 0; i < weights.size(); ++i) {
            StepKernel alone(make_op(kDepth, {weights[i]}, precision), {.f32 = f32, .max_tokens = rows});
            EXPECT_EQ(differing_words(together[i], alone.run_rows({x}, rows)[0]), 0)
                << "weight " << i << ", " << rows << " rows, f32 " << f32;
          }
        }
      }
    }
  }
}

TEST(Linear, PrecisionF32IsTheArithmeticOfF32Mode) {
  Random random(3);
  for (const bool exact : {true, false}) {
    const Matrix w = random_matrix(random, 40, 77, exact);
    const Words x = random.normals(5 * 77);
    const auto y = [&](const std::string& precision, bool f32) {
      return StepKernel(make_op(77, {w}, precision), {.f32 = f32}).run_rows({x}, 5)[0];
    };
    EXPECT_EQ(differing_words(y("f32", false), y("model", true)), 0);
    EXPECT_EQ(differing_words(y("f32", true), y("model", true)), 0);
    EXPECT_GT(differing_words(y("model", false), y("model", true)), 0);
  }
}

TEST(Linear, SampledRows) {
  Random random(4);
  const std::vector<Matrix> weights = {random_matrix(random, 50, 23, true),
                                       random_matrix(random, 3, 23, false)};
  for (const bool f32 : {true, false}) {
    for (const int threads : {1, 2}) {
      const TestSettings settings{.f32 = f32, .threads = threads, .max_tokens = 40};
      StepKernel sampled(make_op(23, weights, "model", Rows::kSampled), settings);
      StepKernel tokens(make_op(23, weights), settings);
      for (const std::int64_t rows : {0, 1, 14, 0, 37}) {
        const Words x = random.normals(rows * 23);
        const auto y = sampled.run_rows({x}, rows);
        const auto want = tokens.run_rows({x}, rows);
        for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(differing_words(y[i], want[i]), 0) << rows;
      }
    }
  }
}

TEST(Linear, ScratchHoldsForAnyLimit) {
  Random random(5);
  const std::vector<Matrix> weights = {random_matrix(random, 33, 19, true),
                                       random_matrix(random, 33, 19, false)};
  for (const std::int64_t limit : {1, 11, 12, 13, 24, 25}) {
    for (const int threads : {1, 2}) {
      StepKernel kernel(make_op(19, weights), {.threads = threads, .max_tokens = limit});
      // StepKernel looks behind the scratch.
      for (const std::int64_t rows : {std::int64_t{1}, limit})
        kernel.run_rows({random.normals(rows * 19)}, rows);
    }
  }
}

TEST(Linear, InfinityAndNaNStayInTheirRow) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Random random(6);
  const Matrix w = random_matrix(random, 20, 6, true);
  Words x = random.normals(3 * 6);
  const Words clean = x;
  x[6] = NAN;
  x[7] = kInfinity;
  for (const bool f32 : {true, false}) {
    const auto y = testing::expect_rows_alone_decide(make_op(6, {w}), {x}, 3, f32)[0];
    const auto want = StepKernel(make_op(6, {w}), {.f32 = f32}).run_rows({clean}, 3)[0];
    EXPECT_EQ(differing_words(testing::rows_of(y, 3, 0, 1), testing::rows_of(want, 3, 0, 1)), 0);
    EXPECT_EQ(differing_words(testing::rows_of(y, 3, 2, 1), testing::rows_of(want, 3, 2, 1)), 0);
    for (const float v : testing::rows_of(y, 3, 1, 1)) EXPECT_TRUE(std::isnan(v));
  }
}

/// A weight whose second row cannot be read.
class BrokenWeight final : public WeightSource {
 public:
  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] const Shape& shape() const override { return shape_; }
  [[nodiscard]] bool exact_in_bf16() const override { return true; }
  Status read_rows(std::int64_t begin, std::int64_t /*count*/, float* out) const override {
    if (begin == 1) return Error{"w.scale: row 1 is not a number"};
    std::fill_n(out, 4, 1.0F);
    return {};
  }

 private:
  std::string name_ = "w";
  Shape shape_ = {3, 4};
};

TEST(Linear, AWeightThatCannotBeReadIsAnError) {
  const TestOp op = make_op(4, {{3, Words(12), true}});
  const NodeSpec spec = op.spec();
  const BrokenWeight broken;
  const KernelContext context{spec, 0, {{}, {&broken}}, {}, {}, testing::chosen_isa(), true, 1};
  const auto kernel = make_linear_cpu(context);
  ASSERT_FALSE(kernel.ok());
  EXPECT_EQ(kernel.error().message, "w.scale: row 1 is not a number");
}

TEST(Linear, NamesWhatIsWrong) {
  const auto message = [](const TestOp& op) {
    return op.infer().ok() ? "accepted" : op.infer().error().message;
  };
  EXPECT_EQ(message(make_op(8, {{2, Words(16)}})), "accepted");
  EXPECT_EQ(message(make_op(8, {{2, Words(16)}}, "bf16")),
            "linear: attribute `precision` must be \"model\" or \"f32\", got \"bf16\"");
  TestOp narrow(linear_contract(), make_linear_cpu);
  narrow.value("x", 8).weight("weight", {2, 8}, Words(16)).weight("weight", {2, 7}, Words(14));
  EXPECT_EQ(message(narrow), "linear: `x` has width 8, a weight has shape [2, 7]");
  TestOp flat(linear_contract(), make_linear_cpu);
  flat.value("x", 8).weight("weight", {8}, Words(8));
  EXPECT_EQ(message(flat), "linear: `x` has width 8, a weight has shape [8]");
  TestOp integers(linear_contract(), make_linear_cpu);
  integers.value("x", ValueType{DType::kI32, Rows::kTokens, {8}}).weight("weight", {2, 8}, Words(16));
  EXPECT_EQ(message(integers), "linear: `x` must be f32 rows, it is i32[T, 8]");
  EXPECT_EQ((*make_op(8, {{2, Words(16)}, {5, Words(40)}}, "f32", Rows::kSampled).infer()),
            (std::vector<ValueType>{{DType::kF32, Rows::kSampled, {2}}, {DType::kF32, Rows::kSampled, {5}}}));
}

}  // namespace
}  // namespace firstlight
