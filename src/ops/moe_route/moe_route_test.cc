#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "ops/moe_route/op.h"
#include "ops/moe_route/reference.h"
#include "ops/step_testing.h"

namespace firstlight {
namespace {

using reference::RouteRules;
using testing::Random;
using testing::StepKernel;
using testing::TestOp;
using testing::Words;
using Ids = std::vector<std::int32_t>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TestOp make_op(std::int64_t experts, const RouteRules& rules, const Words& bias = {}) {
  const auto integer = [](std::size_t n) { return Attribute{static_cast<std::int64_t>(n)}; };
  TestOp op(moe_route_contract(), make_moe_route_cpu);
  op.value("logits", experts)
      .set("topk", integer(rules.topk))
      .set("groups", integer(rules.groups))
      .set("topk_groups", integer(rules.topk_groups))
      .set("renormalize", rules.renormalize)
      .set("scale", rules.scale)
      .set("score", std::string(rules.softmax ? "softmax" : "sigmoid"));
  if (!bias.empty()) op.weight("bias", {static_cast<std::int64_t>(bias.size())}, bias);
  return op;
}

struct Chosen {
  Ids experts;
  Words weights;
};

Chosen route(const TestOp& op, const Words& logits, std::int64_t rows = 1,
             const std::int32_t* forced = nullptr) {
  StepKernel kernel(op, {});
  const auto out = kernel.run(
      {.tokens = Ids(static_cast<std::size_t>(rows)), .sampled = {}, .inputs = {logits}, .forced = forced});
  return {testing::words_int(out[0]), out[1]};
}

/// 4 experts whose scores are far apart, best first: 3, 1, 0, 2.
const Words kFour = {0.0F, 1.0F, -1.0F, 2.0F};

struct Size {
  std::int64_t experts;
  std::size_t topk, groups, topk_groups;
};
constexpr Size kSizes[] = {{1, 1, 1, 1},   {2, 2, 1, 1},   {7, 3, 1, 1},      {33, 8, 1, 1},
                           {256, 8, 1, 1}, {8, 3, 4, 2},   {8, 4, 4, 4},      {12, 5, 2, 1},
                           {30, 6, 10, 3}, {256, 8, 8, 4}, {600, 9, 300, 280}};

void expect_reference(const Size& size, const RouteRules& rules, const Words& logits, const Words& bias,
                      std::int64_t rows) {
  const auto out = testing::expect_rows_alone_decide(make_op(size.experts, rules, bias), {logits}, rows);
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto want = reference::moe_route(testing::rows_of(logits, rows, r, 1), bias, rules);
    ASSERT_EQ(testing::words_int(testing::rows_of(out[0], rows, r, 1)), want.experts)
        << size.experts << " experts, " << rules.topk << " of " << rules.groups << " groups, row " << r;
    // A sigmoid, a sum of up to 9 and two roundings.
    EXPECT_LT(testing::relative_error(testing::rows_of(out[1], rows, r, 1), want.weights), 1.5e-6);
  }
}

TEST(MoeRoute, AgreesWithTheReferenceHoweverItIsRun) {
  Random random(1);
  for (const Size& size : kSizes) {
    for (const bool with_bias : {false, true}) {
      for (const bool renormalize : {false, true}) {
        constexpr std::int64_t kRows = 6;
        expect_reference(size,
                         {size.topk, size.groups, size.topk_groups, renormalize, renormalize ? 2.446 : 1.0,
                          with_bias != renormalize},
                         random.normals(kRows * size.experts, 2.0),
                         with_bias ? random.normals(size.experts, 0.3) : Words{}, kRows);
      }
    }
  }
}

TEST(MoeRoute, TiesGoToTheLowerId) {
  Random random(2);
  // Few values, so most experts tie; no two of these sum to the same, so that no tie depends on rounding.
  const float logits_of[] = {-1.7F, 0.3F, 1.1F};
  const float bias_of[] = {0.0F, 0.4F};
  for (const Size& size : kSizes) {
    constexpr std::int64_t kRows = 4;
    Words logits(static_cast<std::size_t>(kRows * size.experts));
    Words bias(static_cast<std::size_t>(size.experts));
    for (float& l : logits) l = logits_of[random.between(0, 2)];
    for (float& b : bias) b = bias_of[random.between(0, 1)];
    const RouteRules rules{size.topk, size.groups, size.topk_groups, true, 1.0};
    expect_reference(size, rules, logits, bias, kRows);
    expect_reference(size, rules, Words(logits.size(), 0.5F), {}, kRows);  // all tie
  }
  EXPECT_EQ(route(make_op(6, {.topk = 3}), Words(6, 0.0F)).experts, (Ids{0, 1, 2}));
  EXPECT_EQ(route(make_op(6, {.topk = 2, .groups = 3, .topk_groups = 1}), Words(6, 0.0F)).experts,
            (Ids{0, 1}));
}

TEST(MoeRoute, TheBiasChangesTheChoiceNotTheWeights) {
  const RouteRules rules{.topk = 2, .renormalize = false, .scale = 1.0};
  const Chosen plain = route(make_op(4, rules), kFour);
  EXPECT_EQ(plain.experts, (Ids{1, 3}));
  const Chosen lifted = route(make_op(4, rules, {0.0F, 0.0F, 5.0F, 0.0F}), kFour);
  EXPECT_EQ(lifted.experts, (Ids{2, 3}));
  EXPECT_EQ(lifted.weights[1], plain.weights[1]);
  EXPECT_NEAR(lifted.weights[0], 1.0 / (1.0 + std::exp(1.0)), 1e-7);
  const Chosen same = route(make_op(4, rules, {-3.0F, -3.0F, -3.0F, -3.0F}), kFour);
  EXPECT_EQ(same.experts, plain.experts);
  EXPECT_EQ(same.weights, plain.weights);
}

TEST(MoeRoute, AGroupIsJudgedByItsTwoBest) {
  // Group 0 has the best expert, group 1 the better pair; the bias counts in both judgements.
  const Words logits = {4.0F, -4.0F, -4.0F, 2.0F, -5.0F, 2.0F};
  const RouteRules rules{.topk = 2, .groups = 2, .topk_groups = 1};
  EXPECT_EQ(route(make_op(6, rules), logits).experts, (Ids{3, 5}));
  EXPECT_EQ(route(make_op(6, rules, {0.0F, 0.9F, 0.0F, 0.0F, 0.0F, 0.0F}), logits).experts, (Ids{0, 1}));
  // An expert outside the kept groups is never chosen, however negative the others are.
  EXPECT_EQ(
      route(make_op(6, {.topk = 3, .groups = 2, .topk_groups = 1}, {-9, -9, -9, -1, -8, -1}), logits).experts,
      (Ids{3, 4, 5}));
}

TEST(MoeRoute, Renormalize) {
  const auto sum_of = [](bool renormalize, double scale) {
    double sum = 0;
    for (const float w :
         route(make_op(4, {.topk = 3, .renormalize = renormalize, .scale = scale}), kFour).weights) {
      sum += w;
    }
    return sum;
  };
  EXPECT_NEAR(sum_of(true, 1.0), 1.0, 3e-7);
  EXPECT_NEAR(sum_of(true, 2.5), 2.5, 1e-6);
  EXPECT_NEAR(sum_of(false, 1.0), 0.5 + 0.7310585786 + 0.8807970780, 3e-7);
  EXPECT_NEAR(sum_of(false, 2.0), 2 * (0.5 + 0.7310585786 + 0.8807970780), 1e-6);
  // One expert renormalised is 1, whatever its score.
  EXPECT_EQ(route(make_op(4, {.topk = 1, .renormalize = true}), kFour).weights, Words{1.0F});
}

TEST(MoeRoute, ExtremeLogits) {
  const RouteRules rules{.topk = 2, .renormalize = true};
  // No score at all: the weights are 0, not 0 / 0.
  const Chosen none = route(make_op(4, rules), Words(4, -kInfinity));
  EXPECT_EQ(none.experts, (Ids{0, 1}));
  EXPECT_EQ(none.weights, (Words{0.0F, 0.0F}));
  // Scores of 1: -0 and huge logits order as their scores do.
  const Chosen full = route(make_op(4, rules), {-0.0F, 3e38F, kInfinity, 0.0F});
  EXPECT_EQ(full.experts, (Ids{1, 2}));
  EXPECT_EQ(full.weights, (Words{0.5F, 0.5F}));
  // Among the denormals a score still orders.
  EXPECT_EQ(route(make_op(4, rules), {-102.0F, -101.0F, -1000.0F, -100.0F}).experts, (Ids{1, 3}));
}

TEST(MoeRoute, NaNMakesAValidChoice) {
  Random random(3);
  for (const Size& size : kSizes) {
    const RouteRules rules{size.topk, size.groups, size.topk_groups, true, 1.0};
    for (const double share : {0.1, 0.5, 1.0}) {
      Words logits = random.normals(size.experts);
      for (float& l : logits) {
        if (random.uniform() < share) l = std::copysign(NAN, random.uniform() < 0.5 ? 1.0F : -1.0F);
      }
      for (const Isa isa : available_isas()) {
        const auto out = StepKernel(make_op(size.experts, rules), {.isa = isa}).run_rows({logits}, 1);
        const Ids chosen = testing::words_int(out[0]);
        EXPECT_GE(chosen.front(), 0);
        EXPECT_LT(chosen.back(), size.experts);
        EXPECT_TRUE(std::ranges::adjacent_find(chosen, std::greater_equal<>{}) == chosen.end())
            << "not ascending";
      }
    }
  }
}

TEST(MoeRoute, NaNStaysInItsRow) {
  Random random(4);
  Words logits = random.normals(3 * 20);
  logits[25] = NAN;
  const auto out =
      testing::expect_rows_alone_decide(make_op(20, {.topk = 4, .renormalize = true}), {logits}, 3);
  for (const std::int64_t row : {0, 2}) {
    for (const float w : testing::rows_of(out[1], 3, row, 1)) EXPECT_TRUE(std::isfinite(w));
  }
}

TEST(MoeRoute, ForcedChoicesKeepTheirOwnWeights) {
  const TestOp op = make_op(4, {.topk = 2, .renormalize = true, .scale = 3.0});
  Words logits = kFour;
  logits.insert(logits.end(), kFour.begin(), kFour.end());
  const Ids forced = {0, 2, 1, 3};
  const Chosen out = route(op, logits, 2, forced.data());
  EXPECT_EQ(out.experts, forced);
  const Chosen free = route(op, kFour);
  EXPECT_EQ(free.experts, (Ids{1, 3}));
  EXPECT_EQ(testing::rows_of(out.weights, 2, 1, 1), free.weights);
  const double a = 0.5;
  const double b = 1.0 / (1.0 + std::exp(1.0));
  EXPECT_NEAR(out.weights[0], 3 * a / (a + b), 1e-6);
  EXPECT_NEAR(out.weights[1], 3 * b / (a + b), 1e-6);
}

TEST(MoeRoute, NamesWhatIsWrong) {
  const auto message = [](const TestOp& op) {
    return op.infer().ok() ? "accepted" : op.infer().error().message;
  };
  EXPECT_EQ(message(make_op(8, {.topk = 2})), "accepted");
  EXPECT_EQ(message(make_op(8, {.topk = 9})),
            "moe_route: attribute `topk` is 9, only 8 experts can be chosen");
  EXPECT_EQ(message(make_op(8, {.topk = 0})),
            "moe_route: attribute `topk` is 0, only 8 experts can be chosen");
  EXPECT_EQ(message(make_op(8, {.topk = 5, .groups = 4, .topk_groups = 2})),
            "moe_route: attribute `topk` is 5, only 4 experts can be chosen");
  EXPECT_EQ(message(make_op(8, {.topk = 1, .groups = 3})),
            "moe_route: 8 experts do not divide into 3 groups");
  EXPECT_EQ(message(make_op(8, {.topk = 1, .groups = 0})),
            "moe_route: 8 experts do not divide into 0 groups");
  EXPECT_EQ(message(make_op(8, {.topk = 1, .groups = 4, .topk_groups = 5})),
            "moe_route: attribute `topk_groups` is 5 of 4 groups");
  EXPECT_EQ(message(make_op(8, {.topk = 1, .groups = 8, .topk_groups = 2})),
            "moe_route: a group needs two experts (its score is the sum of its two best)");
  EXPECT_EQ(message(make_op(8, {.topk = 2}, Words(7))), "moe_route: the bias has 7 entries for 8 experts");
  TestOp sampled(moe_route_contract(), make_moe_route_cpu);
  sampled.value("logits", ValueType{DType::kF32, Rows::kSampled, {8}});
  sampled.set("topk", std::int64_t{2}).set("renormalize", true).set("scale", 1.0);
  EXPECT_EQ(message(sampled), "moe_route: `logits` must be f32 with a row a token, it is f32[R, 8]");
}

}  // namespace
}  // namespace firstlight
