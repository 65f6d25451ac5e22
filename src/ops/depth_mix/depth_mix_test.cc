#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "ops/depth_mix/op.h"
#include "ops/depth_mix/reference.h"
#include "ops/step_testing.h"

namespace firstlight {
namespace {

using testing::differing_words;
using testing::Random;
using testing::StepKernel;
using testing::TestOp;
using testing::Words;

constexpr double kEps = 1e-5;

TestOp make_op(std::size_t sources, const Words& norm, const Words& proj, Rows rows = Rows::kTokens) {
  const auto width = static_cast<std::int64_t>(norm.size());
  TestOp op(depth_mix_contract(), make_depth_mix_cpu);
  for (std::size_t s = 0; s < sources; ++s) op.value("sources", ValueType{DType::kF32, rows, {width}});
  // Checkpoints hold the projection as a matrix with one row.
  op.weight("norm", {width}, norm).weight("proj", {1, width}, proj).set("eps", kEps);
  return op;
}

void expect_reference(const std::vector<Words>& sources, const Words& norm, const Words& proj,
                      std::int64_t rows, const Words& h) {
  // A softmax turns an absolute error of a score into a relative one of its weight. A score is a normed row
  // times norm * proj, which cannot exceed the root of D times their length; its chain rounds D / 16 times.
  double length = 0;
  for (std::size_t c = 0; c < norm.size(); ++c) {
    length += std::pow(static_cast<double>(norm[c]) * proj[c], 2) * static_cast<double>(norm.size());
  }
  const double tolerance = 2e-7 * (4 + std::sqrt(length));
  for (std::int64_t r = 0; r < rows; ++r) {
    std::vector<Words> row;
    for (const Words& s : sources) row.push_back(testing::rows_of(s, rows, r, 1));
    EXPECT_LT(
        testing::relative_error(testing::rows_of(h, rows, r, 1), reference::depth_mix(row, norm, proj, kEps)),
        tolerance)
        << sources.size() << " sources of width " << norm.size() << ", row " << r;
  }
}

TEST(DepthMix, AgreesWithTheReferenceHoweverItIsRun) {
  Random random(1);
  for (const std::int64_t width : {1, 2, 15, 16, 17, 33, 200}) {
    for (const std::size_t count : {1U, 2U, 9U}) {
      for (const double scale : {1.0, 1e-10, 1e15}) {
        constexpr std::int64_t kRows = 4;
        std::vector<Words> sources;
        for (std::size_t s = 0; s < count; ++s) sources.push_back(random.normals(kRows * width, scale));
        const Words norm = random.normals(width);
        // Scores of about 1 and, in every third case, of about 10.
        const Words proj =
            random.normals(width, (scale == 1.0 ? 10.0 : 1.0) / std::sqrt(static_cast<double>(width)));
        const Rows kind = count == 2 ? Rows::kSampled : Rows::kTokens;
        const auto h =
            testing::expect_rows_alone_decide(make_op(count, norm, proj, kind), sources, kRows, count != 9);
        expect_reference(sources, norm, proj, kRows, h[0]);
      }
    }
  }
}

TEST(DepthMix, OneSourceIsReturnedAsItIs) {
  Random random(2);
  const Words x = random.normals(2 * 30, 1e10);
  const auto h = StepKernel(make_op(1, random.normals(30), random.normals(30, 100.0)), {}).run_rows({x}, 2);
  EXPECT_EQ(differing_words(h[0], x), 0);
}

TEST(DepthMix, AScoreFarAheadTakesAll) {
  // Scores of 1e4 sqrt(8) and its negative: exp of either would overflow or vanish.
  const Words up(8, 2.0F);
  const Words down(8, -3.0F);
  const auto h = StepKernel(make_op(2, Words(8, 1.0F), Words(8, 1e4F)), {}).run_rows({down, up}, 1);
  EXPECT_EQ(h[0], up);
}

TEST(DepthMix, RowsOfZerosCountAsScoreZero) {
  Random random(3);
  const Words norm = random.normals(21);
  const Words proj = random.normals(21);
  const std::vector<Words> sources = {Words(21, 0.0F), random.normals(21)};
  const auto h = testing::expect_rows_alone_decide(make_op(2, norm, proj), sources, 1);
  expect_reference(sources, norm, proj, 1, h[0]);
  EXPECT_EQ(StepKernel(make_op(2, norm, proj), {}).run_rows({Words(21), Words(21)}, 1)[0], Words(21, 0.0F));
}

TEST(DepthMix, NaNStaysInItsRow) {
  Random random(4);
  std::vector<Words> sources = {random.normals(3 * 18), random.normals(3 * 18)};
  sources[1][20] = NAN;
  const auto h =
      testing::expect_rows_alone_decide(make_op(2, random.normals(18), random.normals(18)), sources, 3);
  for (const std::int64_t row : {0, 2}) {
    for (const float v : testing::rows_of(h[0], 3, row, 1)) EXPECT_TRUE(std::isfinite(v));
  }
}

TEST(DepthMix, AStepMayHaveNoRows) {
  for (const Rows kind : {Rows::kTokens, Rows::kSampled}) {
    StepKernel kernel(make_op(2, Words(5), Words(5), kind), {.threads = 2});
    EXPECT_TRUE(kernel.run_rows({{}, {}}, 0)[0].empty());
  }
}

TEST(DepthMix, NamesWhatIsWrong) {
  const auto message = [](std::vector<ValueType> sources, std::int64_t norm, std::int64_t proj, double eps) {
    TestOp op(depth_mix_contract(), make_depth_mix_cpu);
    for (ValueType& s : sources) op.value("sources", std::move(s));
    op.weight("norm", {norm}, Words(static_cast<std::size_t>(norm)));
    op.weight("proj", {1, proj}, Words(static_cast<std::size_t>(proj)));
    op.set("eps", eps);
    return op.infer().ok() ? "accepted" : op.infer().error().message;
  };
  const ValueType x{DType::kF32, Rows::kTokens, {8}};
  const ValueType wide{DType::kF32, Rows::kTokens, {9}};
  const ValueType sampled{DType::kF32, Rows::kSampled, {8}};
  const ValueType integers{DType::kI32, Rows::kTokens, {8}};
  EXPECT_EQ(message({x, x}, 8, 8, 1e-5), "accepted");
  EXPECT_EQ(message({x, x, wide}, 8, 8, 1e-5), "depth_mix: sources differ: f32[T, 8] and f32[T, 9]");
  EXPECT_EQ(message({x, sampled}, 8, 8, 1e-5), "depth_mix: sources differ: f32[T, 8] and f32[R, 8]");
  EXPECT_EQ(message({integers}, 8, 8, 1e-5), "depth_mix: `sources` must be f32 rows, the first is i32[T, 8]");
  EXPECT_EQ(message({x}, 7, 8, 1e-5), "depth_mix: `norm` has 7 entries, the sources 8");
  EXPECT_EQ(message({x}, 8, 9, 1e-5), "depth_mix: `proj` has 9 entries, the sources 8");
  EXPECT_EQ(message({x}, 8, 8, 0.0), "depth_mix: `eps` must be positive, it is 0");
  EXPECT_EQ(message({x}, 8, 8, 1e-60), "depth_mix: `eps` must be positive, it is 1e-60");
}

}  // namespace
}  // namespace firstlight
