// sampled_rows, split and embedding: operators that copy rows and compute nothing.
#include <gtest/gtest.h>

#include <bit>
#include <string>

#include "ops/embedding/op.h"
#include "ops/embedding/reference.h"
#include "ops/sampled_rows/op.h"
#include "ops/sampled_rows/reference.h"
#include "ops/split/op.h"
#include "ops/split/reference.h"
#include "ops/step_testing.h"

namespace firstlight {
namespace {

using testing::differing_words;
using testing::Random;
using testing::StepKernel;
using testing::TestOp;
using testing::Words;

/// Any bits: NaN, infinities and denormals are copied as they are.
Words any_words(Random& random, std::int64_t n) {
  Words out(static_cast<std::size_t>(n));
  for (float& x : out) x = std::bit_cast<float>(static_cast<std::uint32_t>(random.uniform() * 0x1p32));
  return out;
}

std::string message(const TestOp& op) { return op.infer().ok() ? "accepted" : op.infer().error().message; }

TestOp sampled_rows_op(std::int64_t width) {
  TestOp op(sampled_rows_contract(), make_sampled_rows_cpu);
  op.value("x", width);
  return op;
}

TEST(SampledRows, PicksAnyRowsOfAnyWidth) {
  Random random(1);
  for (const std::int64_t width : {1, 3, 16, 50}) {
    for (const std::int32_t tokens : {1, 2, 9, 40}) {
      const Words x = any_words(random, tokens * width);
      for (const double share : {0.0, 0.3, 1.0}) {
        std::vector<std::int32_t> sampled;
        for (std::int32_t t = 0; t < tokens; ++t) {
          if (random.uniform() < share) sampled.push_back(t);
        }
        StepKernel kernel(sampled_rows_op(width), {});
        const auto y = kernel.run({.tokens = std::vector<std::int32_t>(static_cast<std::size_t>(tokens)),
                                   .sampled = sampled,
                                   .inputs = {x}});
        EXPECT_EQ(differing_words(y[0], reference::pick_rows(x, sampled, static_cast<std::size_t>(width))),
                  0);
      }
    }
  }
}

TEST(SampledRows, AStepMayAskForNoRow) {
  StepKernel kernel(sampled_rows_op(4), {});
  EXPECT_TRUE(kernel.run({.tokens = {0, 0}, .sampled = {}, .inputs = {Words(8)}})[0].empty());
}

TEST(SampledRows, NamesWhatIsWrong) {
  EXPECT_EQ((*sampled_rows_op(4).infer())[0], (ValueType{DType::kF32, Rows::kSampled, {4}}));
  TestOp twice(sampled_rows_contract(), make_sampled_rows_cpu);
  twice.value("x", ValueType{DType::kF32, Rows::kSampled, {4}});
  EXPECT_EQ(message(twice), "sampled_rows: `x` must have a row a token, it is f32[R, 4]");
}

TestOp split_op(ValueType x, std::int64_t at) {
  TestOp op(split_contract(), make_split_cpu);
  op.value("x", std::move(x)).set("at", at);
  return op;
}

TEST(Split, CutsEveryRow) {
  Random random(2);
  for (const std::int64_t width : {2, 3, 17, 64}) {
    for (const std::int64_t at : {std::int64_t{1}, width / 2, width - 1}) {
      for (const Rows kind : {Rows::kTokens, Rows::kSampled}) {
        constexpr std::int64_t kRows = 5;
        const Words x = any_words(random, kRows * width);
        StepKernel kernel(split_op({DType::kF32, kind, {width}}, at), {});
        const auto y = kernel.run_rows({x}, kRows);
        Words left;
        Words right;
        for (std::int64_t r = 0; r < kRows; ++r) {
          const Words row = testing::rows_of(x, kRows, r, 1);
          const auto [l, rest] = reference::split(row, static_cast<std::size_t>(at));
          left.insert(left.end(), l.begin(), l.end());
          right.insert(right.end(), rest.begin(), rest.end());
        }
        EXPECT_EQ(differing_words(y[0], left), 0) << width << " at " << at;
        EXPECT_EQ(differing_words(y[1], right), 0) << width << " at " << at;
        EXPECT_TRUE(kernel.run_rows({{}}, 0)[0].empty());
      }
    }
  }
}

TEST(Split, NamesWhatIsWrong) {
  const ValueType x{DType::kF32, Rows::kTokens, {8}};
  EXPECT_EQ(message(split_op(x, 7)), "accepted");
  EXPECT_EQ(message(split_op(x, 8)), "split: attribute `at` is 8, `x` has width 8");
  EXPECT_EQ(message(split_op(x, 0)), "split: attribute `at` is 0, `x` has width 8");
  EXPECT_EQ(message(split_op(x, -1)), "split: attribute `at` is -1, `x` has width 8");
}

ValueType token_ids() { return {DType::kI32, Rows::kTokens, {}}; }

TestOp embedding_op(std::int64_t vocab, std::int64_t width, Words weight, bool exact_in_bf16 = false) {
  TestOp op(embedding_contract(), make_embedding_cpu);
  op.value("tokens", token_ids()).weight("weight", {vocab, width}, std::move(weight), exact_in_bf16);
  return op;
}

TEST(Embedding, GivesTheRowsOfTheWeightInBothModes) {
  Random random(3);
  for (const std::int64_t width : {1, 5, 32}) {
    for (const std::int64_t vocab : {1, 7, 100}) {
      // Not exact in bf16, and yet nothing is rounded in bf16 mode: that is left to the products.
      const Words weight = random.normals(vocab * width);
      std::vector<std::int32_t> tokens;
      for (int t = 0; t < 20; ++t) tokens.push_back(static_cast<std::int32_t>(random.between(0, vocab - 1)));
      tokens.push_back(static_cast<std::int32_t>(vocab - 1));
      for (const bool f32 : {true, false}) {
        StepKernel kernel(embedding_op(vocab, width, weight), {.f32 = f32});
        const auto h = kernel.run({.tokens = tokens, .sampled = {}, .inputs = {testing::int_words(tokens)}});
        EXPECT_EQ(
            differing_words(h[0], reference::embedding(weight, tokens, static_cast<std::size_t>(width))), 0);
        EXPECT_TRUE(kernel.run({.tokens = {}, .sampled = {}, .inputs = {{}}})[0].empty());
      }
    }
  }
}

TEST(Embedding, ATokenOutsideTheVocabularyStopsTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const std::int32_t token : {-1, 3}) {
    EXPECT_DEATH(StepKernel(embedding_op(3, 2, Words(6)), {})
                     .run({.tokens = {token}, .sampled = {}, .inputs = {testing::int_words({token})}}),
                 "outside the vocabulary");
  }
}

TEST(Embedding, NamesWhatIsWrong) {
  EXPECT_EQ((*embedding_op(3, 2, Words(6)).infer())[0], (ValueType{DType::kF32, Rows::kTokens, {2}}));
  const auto with = [](ValueType tokens, Shape weight) {
    TestOp op(embedding_contract(), make_embedding_cpu);
    op.value("tokens", std::move(tokens))
        .weight("weight", weight, Words(static_cast<std::size_t>(element_count(weight))));
    return message(op);
  };
  EXPECT_EQ(with({DType::kF32, Rows::kTokens, {}}, {3, 2}),
            "embedding: `tokens` must be the step's token ids, it is f32[T]");
  EXPECT_EQ(with({DType::kI32, Rows::kSampled, {}}, {3, 2}),
            "embedding: `tokens` must be the step's token ids, it is i32[R]");
  EXPECT_EQ(with({DType::kI32, Rows::kTokens, {8}}, {3, 2}),
            "embedding: `tokens` must be the step's token ids, it is i32[T, 8]");
  EXPECT_EQ(with(token_ids(), {6}), "embedding: the weight must be [vocab, width], it is [6]");
}

}  // namespace
}  // namespace firstlight
