#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "base/dtype.h"
#include "ops/linear/op.h"
#include "ops/moe_experts/op.h"
#include "ops/moe_experts/reference.h"
#include "ops/silu_mul/op.h"
#include "ops/silu_mul/reference.h"
#include "ops/situ_mul/op.h"
#include "ops/situ_mul/reference.h"
#include "ops/step_testing.h"

namespace firstlight {
namespace {

using reference::Expert;
using testing::differing_words;
using testing::Random;
using testing::StepKernel;
using testing::TestOp;
using testing::Words;
using Ids = std::vector<std::int32_t>;

constexpr double kBeta = 4.0;
constexpr double kLinearBeta = 25.0;
constexpr double kLimit = 1.5;  // often reached by the gates of these tests
constexpr double kAlpha = 1.702;

enum class Activation : std::uint8_t { kSilu, kSitu, kClampedSwiglu };
constexpr Activation kActivations[] = {Activation::kSilu, Activation::kSitu, Activation::kClampedSwiglu};

double activate(Activation activation, double gate, double up) {
  switch (activation) {
    case Activation::kSilu:
      return reference::silu_mul(gate, up);
    case Activation::kSitu:
      return reference::situ_mul(gate, up, kBeta, kLinearBeta);
    case Activation::kClampedSwiglu:
      return reference::clamped_swiglu(gate, up, kLimit, kAlpha);
  }
  return NAN;
}

/// The experts of one layer and how they are applied.
struct Layer {
  std::int64_t size = 1;   // of x and y
  std::int64_t width = 1;  // of an expert
  std::vector<Expert> experts;
  std::vector<bool> exact;  // by expert: its weights are exact in bf16
  Activation activation = Activation::kSilu;

  [[nodiscard]] TestOp op(std::int64_t topk, Rows rows = Rows::kTokens) const {
    TestOp op(moe_experts_contract(), make_moe_experts_cpu);
    op.value("x", ValueType{DType::kF32, rows, {size}})
        .value("experts", ValueType{DType::kI32, rows, {topk}})
        .value("weights", ValueType{DType::kF32, rows, {topk}})
        .set("activation", std::string(activation == Activation::kSilu   ? "silu"
                                       : activation == Activation::kSitu ? "situ"
                                                                         : "clamped_swiglu"));
    if (activation == Activation::kSitu) op.set("beta", kBeta).set("linear_beta", kLinearBeta);
    if (activation == Activation::kClampedSwiglu) op.set("limit", kLimit).set("alpha", kAlpha);
    for (std::size_t e = 0; e < experts.size(); ++e) {
      op.weight("gate", {width, size}, experts[e].gate, exact[e]);
      op.weight("up", {width, size}, experts[e].up, exact[e]);
      op.weight("down", {size, width}, experts[e].down, exact[e]);
      if (experts[e].gate_bias.empty()) continue;
      op.weight("gate_bias", {width}, experts[e].gate_bias);
      op.weight("up_bias", {width}, experts[e].up_bias);
      op.weight("down_bias", {size}, experts[e].down_bias);
    }
    return op;
  }
};

Words in_bf16(Words words) {
  for (float& v : words) v = bf16_to_f32(f32_to_bf16(v));
  return words;
}

/// Every other expert is exact in bf16; the first is not.
Layer random_layer(Random& random, std::int64_t experts, std::int64_t size, std::int64_t width,
                   Activation activation = Activation::kSilu, bool biases = false) {
  Layer layer{size, width, {}, {}, activation};
  for (std::int64_t e = 0; e < experts; ++e) {
    const double scale = 2.0 / std::sqrt(static_cast<double>(size));
    Expert expert{random.normals(width * size, scale),
                  random.normals(width * size, scale),
                  random.normals(size * width, scale),
                  {},
                  {},
                  {}};
    layer.exact.push_back(e % 2 == 1);
    if (layer.exact.back()) {
      expert = {in_bf16(expert.gate), in_bf16(expert.up), in_bf16(expert.down), {}, {}, {}};
    }
    if (biases) {
      expert.gate_bias = random.normals(width);
      expert.up_bias = random.normals(width);
      expert.down_bias = random.normals(size);
    }
    layer.experts.push_back(std::move(expert));
  }
  return layer;
}

/// [rows, topk] different ids, ascending, out of [first, first + count).
Ids random_choice(Random& random, std::int64_t rows, std::int64_t topk, std::int64_t first,
                  std::int64_t count) {
  Ids out;
  for (std::int64_t r = 0; r < rows; ++r) {
    std::int64_t missing = topk;
    for (std::int64_t e = 0; e < count; ++e) {
      if (random.uniform() * static_cast<double>(count - e) >= static_cast<double>(missing)) continue;
      out.push_back(static_cast<std::int32_t>(first + e));
      --missing;
    }
  }
  return out;
}

void expect_reference(const Layer& layer, const Words& x, const Ids& chosen, const Words& weights,
                      std::int64_t rows, bool f32, const Words& y) {
  std::vector<Expert> used = layer.experts;
  if (!f32) {
    for (Expert& e : used) {
      e = {in_bf16(e.gate), in_bf16(e.up), in_bf16(e.down), e.gate_bias, e.up_bias, e.down_bias};
    }
  }
  const Words seen = f32 ? x : in_bf16(x);
  const auto topk = static_cast<std::int64_t>(chosen.size()) / rows;
  for (std::int64_t r = 0; r < rows; ++r) {
    const Ids row(chosen.begin() + r * topk, chosen.begin() + (r + 1) * topk);
    const auto want = reference::moe_experts(
        testing::rows_of(seen, rows, r, 1), row, testing::rows_of(weights, rows, r, 1), used,
        [&](double gate, double up) { return activate(layer.activation, gate, up); });
    // f32: chains of `size` and `width` roundings. bf16: hidden values are rounded to 8 bits, each by up to
    // 2^-9.
    const double tolerance = f32 ? 5e-6 : 0x1p-8;
    for (std::int64_t c = 0; c < layer.size; ++c) {
      const auto i = static_cast<std::size_t>(c);
      const float got = y[static_cast<std::size_t>(r * layer.size + c)];
      EXPECT_LE(std::abs(got - want.y[i]), tolerance * want.sums[i])
          << "row " << r << ", channel " << c << ", size " << layer.size << ", width " << layer.width
          << ", f32 " << f32;
    }
  }
}

TEST(MoeExperts, AgreesWithTheReferenceHoweverItIsRun) {
  Random random(1);
  struct Size {
    std::int64_t experts, topk, size, width, rows;
  };
  for (const Size& s : {Size{1, 1, 1, 1, 1}, Size{2, 1, 7, 1, 3}, Size{3, 3, 1, 5, 2}, Size{5, 2, 33, 17, 14},
                        Size{9, 4, 40, 66, 6}}) {
    for (const Activation activation : kActivations) {
      const Layer layer =
          random_layer(random, s.experts, s.size, s.width, activation, activation != Activation::kSitu);
      const Words x = random.normals(s.rows * s.size);
      const Words weights = random.normals(s.rows * s.topk);
      const Ids chosen = random_choice(random, s.rows, s.topk, 0, s.experts);
      for (const bool f32 : {true, false}) {
        const auto y = testing::expect_rows_alone_decide(
            layer.op(s.topk), {x, testing::int_words(chosen), weights}, s.rows, f32);
        expect_reference(layer, x, chosen, weights, s.rows, f32, y[0]);
      }
    }
  }
}

TEST(MoeExperts, ExpertsWithoutRowsAndWithAll) {
  Random random(2);
  constexpr std::int64_t kRows = 27;  // of one expert: more than two blocks of 12
  const Layer layer = random_layer(random, 6, 20, 35);
  const Words x = random.normals(kRows * 20);
  const Words weights = random.normals(kRows);
  for (const std::int32_t only : {0, 3, 5}) {
    const Ids chosen(kRows, only);
    for (const bool f32 : {true, false}) {
      const auto y = testing::expect_rows_alone_decide(layer.op(1), {x, testing::int_words(chosen), weights},
                                                       kRows, f32);
      expect_reference(layer, x, chosen, weights, kRows, f32, y[0]);
    }
  }
}

TEST(MoeExperts, AddsInTheOrderOfTheListOneFusedStepAnExpert) {
  Random random(3);
  const Layer layer = random_layer(random, 5, 64, 24);
  const Words x = random.normals(64);
  const Ids chosen = {0, 1, 3, 4};
  const Words weights = random.normals(4);
  StepKernel one(layer.op(1), {});
  std::vector<Words> parts;
  for (const std::int32_t e : chosen)
    parts.push_back(one.run_rows({x, testing::int_words({e}), {1.0F}}, 1)[0]);
  const auto sum = [&](const std::vector<std::size_t>& order) {
    Words y(64, 0.0F);
    for (const std::size_t i : order) {
      for (std::size_t c = 0; c < y.size(); ++c) y[c] = std::fmaf(weights[i], parts[i][c], y[c]);
    }
    return y;
  };
  StepKernel all(layer.op(4), {});
  const Words y = all.run_rows({x, testing::int_words(chosen), weights}, 1)[0];
  EXPECT_EQ(differing_words(y, sum({0, 1, 2, 3})), 0);
  EXPECT_GT(differing_words(y, sum({3, 2, 1, 0})), 0);
}

TEST(MoeExperts, AnExpertIsItsThreeLinearsToTheBit) {
  Random random(4);
  constexpr std::int64_t kRows = 15;
  for (const bool situ : {false, true}) {
    for (const std::size_t e : {0U, 1U}) {  // not exact in bf16, exact
      const Layer layer = random_layer(random, 2, 37, 45, situ ? Activation::kSitu : Activation::kSilu);
      const Words x = random.normals(kRows * 37);
      for (const bool f32 : {true, false}) {
        const testing::TestSettings settings{.f32 = f32};
        const auto linear = [&](const Words& in, std::int64_t k, const std::vector<const Words*>& weights) {
          TestOp op(linear_contract(), make_linear_cpu);
          op.value("x", k);
          for (const Words* w : weights) {
            op.weight("weight", {static_cast<std::int64_t>(w->size()) / k, k}, *w, layer.exact[e]);
          }
          return StepKernel(op, settings).run_rows({in}, kRows);
        };
        TestOp activation = situ ? TestOp(situ_mul_contract(), make_situ_mul_cpu)
                                 : TestOp(silu_mul_contract(), make_silu_mul_cpu);
        activation.value("gate", 45).value("up", 45);
        if (situ) activation.set("beta", kBeta).set("linear_beta", kLinearBeta);
        const Expert& expert = layer.experts[e];
        const Words hidden =
            StepKernel(activation, settings).run_rows(linear(x, 37, {&expert.gate, &expert.up}), kRows)[0];
        const Words want = linear(hidden, 45, {&expert.down})[0];
        StepKernel moe(layer.op(1), settings);
        const Words y = moe.run_rows(
            {x, testing::int_words(Ids(kRows, static_cast<std::int32_t>(e))), Words(kRows, 1.0F)}, kRows)[0];
        EXPECT_EQ(differing_words(y, want), 0) << "situ " << situ << ", expert " << e << ", f32 " << f32;
      }
    }
  }
}

TEST(MoeExperts, SampledRowsAndNoRows) {
  Random random(5);
  const Layer layer = random_layer(random, 4, 10, 6);
  const testing::TestSettings settings{.threads = 2, .max_tokens = 20};
  StepKernel tokens(layer.op(2), settings);
  StepKernel sampled(layer.op(2, Rows::kSampled), settings);
  for (const std::int64_t rows : {0, 5, 20}) {
    const std::vector<Words> in = {random.normals(rows * 10),
                                   testing::int_words(random_choice(random, rows, 2, 0, 4)),
                                   random.normals(rows * 2)};
    EXPECT_EQ(differing_words(sampled.run_rows(in, rows)[0], tokens.run_rows(in, rows)[0]), 0) << rows;
  }
}

TEST(MoeExperts, LargeValuesSaturateSituAndStayInTheirRow) {
  Random random(6);
  Layer layer = random_layer(random, 2, 8, 8, Activation::kSitu);
  Words x = random.normals(3 * 8);
  for (std::size_t c = 8; c < 16; ++c) x[c] *= 1e30F;  // SiLU would overflow in the product
  const Ids chosen = {0, 1, 0, 1, 0, 1};
  const Words weights(6, 0.5F);
  const auto y = testing::expect_rows_alone_decide(layer.op(2), {x, testing::int_words(chosen), weights}, 3);
  expect_reference(layer, x, chosen, weights, 3, true, y[0]);
  x[9] = NAN;
  const auto with_nan =
      testing::expect_rows_alone_decide(layer.op(2), {x, testing::int_words(chosen), weights}, 3);
  for (const std::int64_t row : {0, 2}) {
    EXPECT_EQ(differing_words(testing::rows_of(with_nan[0], 3, row, 1), testing::rows_of(y[0], 3, row, 1)),
              0);
  }
}

TEST(MoeExperts, AnIdThatIsNoExpertsStopsTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Random random(7);
  const Layer layer = random_layer(random, 2, 3, 3);
  for (const std::int32_t id : {-1, 2}) {
    EXPECT_DEATH(StepKernel(layer.op(1), {}).run_rows({Words(3), testing::int_words({id}), Words(1)}, 1),
                 "an id that is no expert's");
  }
}

TEST(MoeExperts, NamesWhatIsWrong) {
  struct Types {
    ValueType x{DType::kF32, Rows::kTokens, {8}};
    ValueType experts{DType::kI32, Rows::kTokens, {2}};
    ValueType weights{DType::kF32, Rows::kTokens, {2}};
    std::vector<Shape> gate{{5, 8}, {5, 8}}, up{{5, 8}, {5, 8}}, down{{8, 5}, {8, 5}};
    std::vector<Shape> gate_bias = {}, up_bias = {}, down_bias = {};
    std::string activation = "situ";
    double beta = 4.0;
    double linear_beta = 0.0;
    double limit = 0.0;
  };
  const auto message = [](const Types& t) {
    TestOp op(moe_experts_contract(), make_moe_experts_cpu);
    op.value("x", t.x).value("experts", t.experts).value("weights", t.weights);
    const auto add = [&](const char* slot, const std::vector<Shape>& shapes) {
      for (const Shape& s : shapes) op.weight(slot, s, Words(static_cast<std::size_t>(element_count(s))));
    };
    add("gate", t.gate);
    add("up", t.up);
    add("down", t.down);
    add("gate_bias", t.gate_bias);
    add("up_bias", t.up_bias);
    add("down_bias", t.down_bias);
    op.set("limit", t.limit);
    op.set("activation", t.activation).set("beta", t.beta).set("linear_beta", t.linear_beta);
    return op.infer().ok() ? "accepted" : op.infer().error().message;
  };
  EXPECT_EQ(message({}), "accepted");
  EXPECT_EQ(message({.x = {DType::kI32, Rows::kTokens, {8}}}),
            "moe_experts: `x` must be f32 rows, it is i32[T, 8]");
  const std::string rule = ", they must be i32 and f32 of one shape with the rows of `x`, f32[T, 8]";
  EXPECT_EQ(message({.experts = {DType::kF32, Rows::kTokens, {2}}}),
            "moe_experts: `experts` is f32[T, 2], `weights` is f32[T, 2]" + rule);
  EXPECT_EQ(message({.weights = {DType::kF32, Rows::kTokens, {3}}}),
            "moe_experts: `experts` is i32[T, 2], `weights` is f32[T, 3]" + rule);
  EXPECT_EQ(message({.experts = {DType::kI32, Rows::kSampled, {2}}}),
            "moe_experts: `experts` is i32[R, 2], `weights` is f32[T, 2]" + rule);
  EXPECT_EQ(message({.up = {{5, 8}}}), "moe_experts: `gate`, `up` and `down` must list one matrix an expert");
  EXPECT_EQ(message({.up = {{5, 8}, {6, 8}}}),
            "moe_experts: expert 1 has shapes [5, 8], [6, 8], [8, 5] for `x` of width 8");
  EXPECT_EQ(message({.down = {{8, 5}, {5, 8}}}),
            "moe_experts: expert 1 has shapes [5, 8], [5, 8], [5, 8] for `x` of width 8");
  EXPECT_EQ(message({.gate_bias = {{5}, {5}}, .up_bias = {{5}, {5}}, .down_bias = {{8}, {8}}}), "accepted");
  EXPECT_EQ(
      message({.gate_bias = {{5}, {5}}, .up_bias = {{5}, {5}}}),
      "moe_experts: `gate_bias`, `up_bias` and `down_bias` must all list one vector an expert, or none");
  EXPECT_EQ(message({.gate_bias = {{5}, {5}}, .up_bias = {{5}, {6}}, .down_bias = {{8}, {8}}}),
            "moe_experts: the biases of expert 1 have shapes [5], [6], [8]");
  EXPECT_EQ(message({.activation = "clamped_swiglu", .limit = 7.0}), "accepted");
  EXPECT_EQ(message({.activation = "clamped_swiglu"}),
            "moe_experts: attribute `limit` must be positive with activation \"clamped_swiglu\", it is 0");
  EXPECT_EQ(
      message({.activation = "gelu"}),
      "moe_experts: attribute `activation` must be \"silu\", \"situ\" or \"clamped_swiglu\", got \"gelu\"");
  EXPECT_EQ(message({.beta = 0.0}),
            "moe_experts: attribute `beta` must be positive with activation \"situ\", it is 0");
  EXPECT_EQ(message({.activation = "silu", .beta = 0.0}), "accepted");
  EXPECT_EQ(message({.linear_beta = -2.0}),
            "moe_experts: attribute `linear_beta` must be positive or 0 (unlimited), it is -2");
}

}  // namespace
}  // namespace firstlight
