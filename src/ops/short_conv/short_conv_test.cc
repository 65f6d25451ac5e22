#include <gtest/gtest.h>

#include "ops/op_testing.h"
#include "ops/shares.h"
#include "ops/short_conv/op.h"
#include "ops/short_conv/reference.h"

namespace firstlight {
namespace {

using testing::differing_words;
using testing::Random;
using testing::TestOp;
using testing::TestSession;
using testing::TestSettings;
using testing::Words;

TestOp make_op(std::int64_t channels, std::int64_t taps, Words weight) {
  TestOp op(short_conv_contract(), make_short_conv_cpu);
  op.value("x", channels).weight("weight", {channels, 1, taps}, std::move(weight));
  return op;
}

TEST(ShortConv, AgreesWithTheReferenceOnEveryInstructionSetWithTheSameBits) {
  Random random(1);
  for (std::int64_t taps = 2; taps <= 8; ++taps) {
    for (const std::int64_t channels : {1, 15, 16, 17, 50}) {
      for (const bool f32 : {true, false}) {
        constexpr std::int64_t kTokens = 35;
        const Words w = random.normals(channels * taps);
        const Words x = random.normals(channels * kTokens, taps % 2 == 0 ? 1.0 : 30.0);
        Words used = x;  // what the convolution sees
        if (!f32) {
          for (float& v : used) v = bf16_to_f32(f32_to_bf16(v));
        }
        Words first;
        for (const Isa isa : available_isas()) {
          TestSession session(make_op(channels, taps, w), {.isa = isa, .f32 = f32, .stale = 0x41});
          const std::size_t s = session.add({x});
          session.feed(s, {kTokens});
          if (first.empty()) first = session.output(s);
          EXPECT_EQ(differing_words(session.output(s), first), 0) << isa_name(isa);
          const Words tail(used.end() - (taps - 1) * channels, used.end());
          EXPECT_EQ(differing_words(session.exported(s), tail), 0) << isa_name(isa);
        }
        // Sums of up to eight terms cancel; the error is relative to the largest output.
        EXPECT_LT(testing::relative_error(first, reference::short_conv(used, w, channels)), 1e-6)
            << taps << " " << channels;
      }
    }
  }
}

TEST(ShortConv, BitsDoNotDependOnCutsThreadsOrNeighbours) {
  Random random(2);
  constexpr std::int64_t kChannels = 563;
  static_assert(60 * kChannels > kShareAlone);  // pieces of 60 rows and more are shared out
  constexpr std::int64_t kTokens = 70;
  for (const bool f32 : {true, false}) {
    const Words w = random.normals(kChannels * 4);
    const Words x = random.normals(kChannels * kTokens);
    const TestOp op = make_op(kChannels, 4, w);
    TestSession whole(op, {.f32 = f32});
    whole.feed(whole.add({x}), {kTokens});
    const std::vector<std::vector<std::int64_t>> cuts = {
        std::vector<std::int64_t>(kTokens, 1), {1, 69}, {2, 1, 67}, {15, 16, 17, 22}, {64, 6}, {69, 1}};
    for (const auto& cut : cuts) {
      for (const int threads : {1, 2}) {
        TestSession session(op, {.f32 = f32, .threads = threads, .stale = 0xff});
        session.feed(session.add({x}), cut);
        EXPECT_EQ(differing_words(session.output(0), whole.output(0)), 0) << cut.size();
        EXPECT_EQ(differing_words(session.exported(0), whole.exported(0)), 0) << cut.size();
      }
    }
    TestSession batch(op, {.f32 = f32, .threads = 2, .stale = 0xff});
    const std::size_t a = batch.add({random.normals(kChannels * kTokens)});
    const std::size_t b = batch.add({x});
    batch.step({{a, 3}, {b, 1}});
    batch.step({{b, 40}, {a, 1}});
    batch.step({{a, 1}, {b, 29}});
    EXPECT_EQ(differing_words(batch.output(b), whole.output(0)), 0);
    EXPECT_EQ(differing_words(batch.exported(b), whole.exported(0)), 0);
  }
}

TEST(ShortConv, BeforeTheFirstTokenTheHistoryIsZero) {
  const TestOp op = make_op(5, 4, Words(20, 1.0F));
  TestSession session(op, {.stale = 0xff});
  EXPECT_EQ(session.exported(session.add({Words(5)})), Words(15, 0.0F));
}

TEST(ShortConv, CostCountsTheHistoryReadAndWritten) {
  const TestOp op = make_op(5, 4, Words(20, 1.0F));
  EXPECT_EQ(short_conv_contract().cost(op.spec(), {.tokens = 7}).cache_bytes, 2 * 2 * 15);
  EXPECT_EQ(short_conv_contract().cost(op.spec(), {.tokens = 7, .f32 = true}).cache_bytes, 2 * 4 * 15);
}

TEST(ShortConv, NamesWhatIsWrong) {
  EXPECT_EQ(make_op(8, 9, Words(72)).infer().error().message,
            "short_conv: the weight has 9 taps a channel, 2 to 8 are supported");
  TestOp op(short_conv_contract(), make_short_conv_cpu);
  op.value("x", 8).weight("weight", {6, 1, 4}, Words(24));
  ASSERT_FALSE(op.infer().ok());
  EXPECT_EQ(op.infer().error().message,
            "short_conv: `x` has 8 channels, the weight is [6, 1, 4] where [channels, 1, taps] is expected");
}

}  // namespace
}  // namespace firstlight
