#include <gtest/gtest.h>

#include <numeric>

#include "ops/kda/layout.h"
#include "ops/kda/op.h"
#include "ops/kda/reference.h"
#include "ops/op_testing.h"

namespace firstlight {
namespace {

using testing::differing_words;
using testing::Random;
using testing::TestOp;
using testing::TestSession;
using testing::Words;

/// A node with its weights, and inputs of one sequence.
struct Case {
  std::int64_t heads;
  std::int64_t dk;
  std::int64_t dv;
  bool bounded;
  double lower_bound;
  Words a_log;    // [heads + padding]
  Words dt_bias;  // [heads, decays()]
  bool head_decay = false;
  std::int64_t key_heads = heads;

  /// Decays of a head.
  [[nodiscard]] std::int64_t decays() const { return head_decay ? 1 : dk; }
  [[nodiscard]] TestOp op() const {
    TestOp op(kda_contract(), make_kda_cpu);
    op.value("q", key_heads * dk).value("k", key_heads * dk).value("v", heads * dv);
    op.value("f", heads * decays()).value("beta", heads);
    op.weight("A_log", {1, 1, static_cast<std::int64_t>(a_log.size()), 1}, a_log);
    op.weight("dt_bias", {static_cast<std::int64_t>(dt_bias.size())}, dt_bias);
    op.set("heads", heads).set("key_dim", dk).set("value_dim", dv);
    op.set("gate", std::string(bounded ? "bounded" : "softplus")).set("lower_bound", lower_bound);
    if (head_decay) op.set("decay", std::string("head"));
    if (key_heads != heads) op.set("key_heads", key_heads);
    return op;
  }
};

/// How the gate of a case behaves.
struct Gate {
  const char* name;
  bool bounded;
  double a_log;
  double f_scale;
  double f_shift;
  bool head_decay = false;
};
constexpr Gate kGates[] = {
    {"bounded, mixed", true, 1.0, 3.0, 0.0},
    {"bounded, saturated at the bound", true, 0.0, 0.1, 40.0},
    {"bounded, closed", true, 0.0, 1.0, -40.0},
    {"bounded, weak", true, 0.0, 1.0, -5.0},
    {"softplus, mixed", false, 0.5, 2.0, 0.0},
    {"softplus, strong", false, 2.77, 10.0, 0.0},
    {"softplus, to 300 and beyond", false, 0.0, 100.0, 150.0},
    {"softplus, closed", false, 0.0, 1.0, -60.0},
    {"softplus, one a head", false, 0.5, 2.0, 0.0, true},
    {"softplus, one a head, strong", false, 2.77, 10.0, 0.0, true},
    {"softplus, one a head, to 300 and beyond", false, 0.0, 100.0, 150.0, true},
    {"bounded, one a head", true, 1.0, 3.0, 0.0, true},
};
constexpr std::int64_t kLastGate = std::size(kGates) - 1;

/// Each key head is shared by `group` heads.
Case make_case(Random& random, const Gate& gate, std::int64_t key_heads, std::int64_t dk, std::int64_t dv,
               std::int64_t group = 1) {
  const std::int64_t heads = key_heads * group;
  Case c{heads, dk, dv, gate.bounded, gate.bounded ? -5.0 : 0.0, {}, {}, gate.head_decay, key_heads};
  c.dt_bias = random.normals(heads * c.decays(), 0.5);
  for (std::int64_t h = 0; h < heads; ++h) {
    c.a_log.push_back(static_cast<float>(gate.a_log + 0.1 * random.normal()));
  }
  c.a_log.resize(static_cast<std::size_t>(heads + 3), 1e30F);  // padding must not be looked at
  return c;
}

/// Inputs in slot order. With `correlated` the keys of all tokens are within cosine 0.998 of each other.
std::vector<Words> make_inputs(Random& random, const Case& c, const Gate& gate, std::int64_t tokens,
                               bool correlated, double scale = 1.0) {
  const std::int64_t keys = c.key_heads * c.dk;
  std::vector<Words> in = {random.normals(tokens * keys, scale), random.normals(tokens * keys, scale),
                           random.normals(tokens * c.heads * c.dv, scale),
                           random.normals(tokens * c.heads * c.decays(), gate.f_scale),
                           random.normals(tokens * c.heads, 2.0)};
  for (float& f : in[3]) f += static_cast<float>(gate.f_shift);
  if (correlated) {
    const Words base = random.normals(keys, scale);
    for (std::size_t i = 0; i < in[0].size(); ++i) {
      const float common = base[i % base.size()];
      in[0][i] = common + 0.045F * in[0][i];  // 1 / (1 + 0.045^2) = 0.998
      in[1][i] = common + 0.045F * in[1][i];
    }
    for (float& beta : in[4]) beta += 3.0F;
  }
  return in;
}

/// Outputs [tokens, heads, dv] and the final state [heads, dk, dv] in double.
struct Expected {
  std::vector<double> o;
  std::vector<double> state;
};
Expected expect(const Case& c, const std::vector<Words>& in, std::int64_t tokens) {
  Expected e;
  e.o.resize(static_cast<std::size_t>(tokens * c.heads * c.dv));
  for (std::int64_t h = 0; h < c.heads; ++h) {
    const reference::KdaHead head{
        c.dk,
        c.dv,
        c.a_log[static_cast<std::size_t>(h)],
        Words(c.dt_bias.begin() + h * c.decays(), c.dt_bias.begin() + (h + 1) * c.decays()),
        c.bounded,
        c.lower_bound,
        c.head_decay};
    const std::int64_t key_head = h * c.key_heads / c.heads;
    std::vector<double> state(static_cast<std::size_t>(c.dk * c.dv));
    for (std::int64_t t = 0; t < tokens; ++t) {
      const auto cut = [](const Words& w, std::int64_t index, std::int64_t width) {
        return std::span<const float>(w).subspan(static_cast<std::size_t>(index * width),
                                                 static_cast<std::size_t>(width));
      };
      const auto key = [&](const Words& w) { return cut(w, t * c.key_heads + key_head, c.dk); };
      const auto part = [&](const Words& w, std::int64_t width) { return cut(w, t * c.heads + h, width); };
      const std::vector<double> o = reference::kda_step(
          head, {key(in[0]), key(in[1]), part(in[2], c.dv), part(in[3], c.decays()), part(in[4], 1)[0]},
          state);
      std::copy(o.begin(), o.end(), e.o.begin() + (t * c.heads + h) * c.dv);
    }
    e.state.insert(e.state.end(), state.begin(), state.end());
  }
  return e;
}

/// The bits of a sequence: its outputs and its state.
struct Bits {
  Words o;
  Words state;
};
Bits bits_of(const TestSession& session, std::size_t sequence) {
  return {session.output(sequence), session.exported(sequence)};
}
void expect_same(const Bits& a, const Bits& b, const std::string& what) {
  EXPECT_EQ(differing_words(a.o, b.o), 0) << what;
  EXPECT_EQ(differing_words(a.state, b.state), 0) << what;
}

// Spec kimi 4.4: this form measures 3.2e-7 of the largest value, the f32 recurrence itself 1.4e-6.
constexpr double kTolerance = 1.5e-6;

TEST(Kda, AgreesWithTheRecurrenceForAnyGate) {
  Random random(1);
  for (const Gate& gate : kGates) {
    for (const bool correlated : {false, true}) {
      for (const std::int64_t tokens : {1, 15, 64, 127}) {
        const Case c = make_case(random, gate, 2, 128, 128);
        const std::vector<Words> in = make_inputs(random, c, gate, tokens, correlated);
        const Expected e = expect(c, in, tokens);
        TestSession session(c.op(), {});
        session.feed(session.add(in), {tokens});
        const double output = testing::relative_error(session.output(0), e.o);
        const double state = testing::relative_error(session.exported(0), e.state);
        EXPECT_LT(output, kTolerance) << gate.name << ", correlated " << correlated << ", " << tokens;
        EXPECT_LT(state, kTolerance) << gate.name << ", correlated " << correlated << ", " << tokens;
      }
    }
  }
}

TEST(Kda, AnyShapeAndTailWithTheSameBitsOnEveryInstructionSet) {
  Random random(2);
  const std::int64_t shapes[][2] = {{1, 1},   {3, 5},   {16, 33}, {17, 16},  {24, 48},
                                    {40, 31}, {64, 96}, {70, 65}, {128, 20}, {20, 128}};
  std::int64_t tokens = 1;
  for (const auto& [dk, dv] : shapes) {
    for (int round = 0; round < 7; ++round) {
      const Gate& gate = kGates[static_cast<std::size_t>(random.between(0, kLastGate))];
      const Case c = make_case(random, gate, random.between(1, 3), dk, dv, random.between(1, 3));
      const std::vector<Words> in = make_inputs(random, c, gate, tokens, random.between(0, 1) == 1);
      const Expected e = expect(c, in, tokens);
      Bits first;
      for (const Isa isa : available_isas()) {
        TestSession session(c.op(), {.isa = isa, .stale = 0xff});  // stale memory holds NaN
        session.feed(session.add(in), {tokens});
        if (first.o.empty()) first = bits_of(session, 0);
        expect_same(bits_of(session, 0), first, std::string(isa_name(isa)));
      }
      EXPECT_LT(testing::relative_error(first.o, e.o), kTolerance) << dk << " " << dv << " " << tokens;
      EXPECT_LT(testing::relative_error(first.state, e.state), kTolerance)
          << dk << " " << dv << " " << tokens;
      tokens = tokens % 64 + 1;
    }
  }
}

TEST(Kda, BitsDoNotDependOnCutsOrThreads) {
  Random random(3);
  constexpr std::int64_t kTokens = 131;
  const std::vector<std::vector<std::int64_t>> cuts = {{1, 130},
                                                       {15, 116},
                                                       {16, 115},
                                                       {17, 114},
                                                       {63, 68},
                                                       {64, 67},
                                                       {65, 66},
                                                       {100, 31},
                                                       {1, 14, 1, 1, 47, 67},
                                                       {3, 7, 16, 2, 5, 98},
                                                       std::vector<std::int64_t>(kTokens, 1)};
  const std::int64_t shapes[][2] = {{64, 128}, {40, 70}};
  for (const Gate& gate : {kGates[0], kGates[5], kGates[8]}) {
    for (const auto& [dk, dv] : shapes) {
      const Case c = make_case(random, gate, gate.head_decay ? 2 : 3, dk, dv, gate.head_decay ? 2 : 1);
      const std::vector<Words> in = make_inputs(random, c, gate, kTokens, false);
      TestSession whole(c.op(), {});
      whole.feed(whole.add(in), {kTokens});
      for (const auto& cut : cuts) {
        for (const int threads : {1, 2, 3}) {
          TestSession session(c.op(), {.threads = threads, .stale = 0xff});
          session.feed(session.add(in), cut);
          expect_same(bits_of(session, 0), bits_of(whole, 0),
                      std::to_string(cut[0]) + " ... of " + std::to_string(cut.size()) + " cuts, " +
                          std::to_string(threads) + " threads");
        }
      }
    }
  }
}

TEST(Kda, BitsDoNotDependOnTheOtherSequencesOfAStep) {
  Random random(4);
  constexpr std::int64_t kTokens = 70;
  for (int round = 0; round < 10; ++round) {
    const Gate& gate = kGates[round % 2 == 0 ? 4 : 9];
    const Case c = make_case(random, gate, 3, 32, 40, 1 + round % 3);
    const std::vector<Words> in = make_inputs(random, c, gate, kTokens, false);
    TestSession alone(c.op(), {});
    alone.feed(alone.add(in), {kTokens});
    TestSession batch(c.op(), {.threads = 2, .stale = 0xff});
    const std::size_t a = batch.add(make_inputs(random, c, gate, 200, true, 100.0));
    const std::size_t b = batch.add(in);
    const std::size_t d = batch.add(make_inputs(random, c, gate, 200, false));
    while (batch.sequence(b).position < kTokens) {
      const std::int64_t left = kTokens - batch.sequence(b).position;
      std::vector<TestSession::Piece> pieces = {
          {a, random.between(0, 2)}, {b, std::min(left, random.between(0, 33))}, {d, 1}};
      if (random.between(0, 1) == 1) std::swap(pieces[0], pieces[1]);
      batch.step(pieces);
    }
    expect_same(bits_of(batch, b), bits_of(alone, 0), "in a batch");
  }
}

TEST(Kda, TheStateBlockItselfDoesNotDependOnCuts) {
  // Snapshots copy the block: from zeroed memory on, its bytes are a function of the tokens alone.
  Random random(5);
  for (const std::int64_t tokens : {5, 16, 33, 48}) {
    const Gate& gate = kGates[tokens % 2 == 0 ? 4 : 8];
    const Case c = make_case(random, gate, 1, 20, 40, 2);
    const std::vector<Words> in = make_inputs(random, c, gate, tokens, false);
    TestSession whole(c.op(), {});
    whole.feed(whole.add(in), {tokens});
    TestSession single(c.op(), {.isa = Isa::kGeneric});
    single.feed(single.add(in), std::vector<std::int64_t>(static_cast<std::size_t>(tokens), 1));
    EXPECT_EQ(std::memcmp(whole.sequence(0).state->data(), single.sequence(0).state->data(),
                          static_cast<std::size_t>(whole.state_bytes())),
              0)
        << tokens;
  }
}

TEST(Kda, ExtremeMagnitudesStayFiniteAndAccurate) {
  Random random(6);
  for (const Gate& gate : {kGates[0], kGates[4], kGates[6], kGates[8]}) {
    const Case c = make_case(random, gate, 2, 48, 40);
    // Below, outputs (about scale^3 once q and k are smaller than the eps) would be denormal.
    for (const double scale : {1e-8, 1e-3, 1e3, 1e15}) {
      const std::vector<Words> in = make_inputs(random, c, gate, 50, false, scale);
      const Expected e = expect(c, in, 50);
      TestSession session(c.op(), {});
      session.feed(session.add(in), {50});
      EXPECT_LT(testing::relative_error(session.output(0), e.o), kTolerance) << gate.name << " " << scale;
      EXPECT_LT(testing::relative_error(session.exported(0), e.state), kTolerance)
          << gate.name << " " << scale;
    }
  }
}

TEST(Kda, AVeryStrongDecayForgetsEverythingBefore) {
  Random random(7);
  for (const bool head_decay : {false, true}) {
    const Gate gate{"softplus, 1e30", false, 30.0, 0.0, 1e17, head_decay};
    const Case c = make_case(random, gate, 1, 16, 16);
    const std::vector<Words> in = make_inputs(random, c, gate, 40, false);
    TestSession session(c.op(), {});
    session.feed(session.add(in), {40});
    const Expected e = expect(c, in, 40);
    EXPECT_LT(testing::relative_error(session.output(0), e.o), kTolerance);
    EXPECT_LT(testing::relative_error(session.exported(0), e.state), kTolerance);
  }
}

TEST(Kda, OneDecayAHeadEqualsTheSameDecayOnEveryChannel) {
  Random random(12);
  const Case one = make_case(random, kGates[8], 2, 24, 40, 2);
  const std::vector<Words> in = make_inputs(random, one, kGates[8], 37, false);
  Case each = one;
  each.head_decay = false;
  each.dt_bias.clear();
  for (const float bias : one.dt_bias) each.dt_bias.insert(each.dt_bias.end(), 24, bias);
  std::vector<Words> spread = in;
  spread[3].clear();
  for (const float f : in[3]) spread[3].insert(spread[3].end(), 24, f);
  TestSession a(one.op(), {});
  TestSession b(each.op(), {});
  a.feed(a.add(in), {37});
  b.feed(b.add(spread), {37});
  expect_same(bits_of(a, 0), bits_of(b, 0), "a decay for all channels");
}

TEST(Kda, ConsecutiveHeadsShareAKeyHead) {
  Random random(13);
  const Case shared = make_case(random, kGates[8], 2, 24, 8, 3);
  const std::vector<Words> in = make_inputs(random, shared, kGates[8], 21, false);
  Case own = shared;
  own.key_heads = own.heads;
  std::vector<Words> copied = in;
  for (const std::size_t i : {0U, 1U}) {
    copied[i].clear();
    for (auto head = in[i].begin(); head != in[i].end(); head += 24) {
      for (int copy = 0; copy < 3; ++copy) copied[i].insert(copied[i].end(), head, head + 24);
    }
  }
  TestSession a(shared.op(), {});
  TestSession b(own.op(), {});
  a.feed(a.add(in), {21});
  b.feed(b.add(copied), {21});
  expect_same(bits_of(a, 0), bits_of(b, 0), "copied keys");
}

TEST(Kda, BeforeTheFirstTokenTheStateIsZero) {
  Random random(8);
  const Case c = make_case(random, kGates[0], 2, 5, 7);
  TestSession session(c.op(), {.stale = 0xff});
  const std::size_t s = session.add(make_inputs(random, c, kGates[0], 1, false));
  EXPECT_EQ(session.exported(s), Words(2 * 5 * 7, 0.0F));
}

TEST(Kda, DeclaresItsStateAndItsCost) {
  Random random(9);
  const Case c = make_case(random, kGates[0], 96, 128, 128);
  const NodeSpec spec = c.op().spec();
  const std::vector<CacheSpec> caches = kda_contract().caches(spec);
  ASSERT_EQ(caches.size(), 1U);
  EXPECT_EQ(caches[0].scope, CacheSpec::Scope::kPerSequence);
  EXPECT_EQ(caches[0].storage, CacheSpec::Storage::kF32);
  EXPECT_EQ(caches[0].elements, 96 * (128 * 128 + 128 + 16 * (128 + 128)));
  const Cost cost = kda_contract().cost(spec, {.tokens = 1});
  EXPECT_GE(cost.flops, 96.0 * 6 * 128 * 128);
  EXPECT_GE(cost.cache_bytes, 96.0 * 4 * 128 * 128);
}

std::string error_of(const Case& c) {
  const auto types = c.op().infer();
  return types.ok() ? "" : types.error().message;
}

TEST(Kda, NamesWhatIsWrong) {
  Random random(10);
  const Case good = make_case(random, kGates[0], 2, 4, 6);
  EXPECT_EQ(error_of(good), "");
  Case c = good;
  c.lower_bound = 0;
  EXPECT_EQ(error_of(c), "kda: gate \"bounded\" needs a negative `lower_bound`, it is 0");
  c = good;
  c.bounded = false;
  EXPECT_EQ(error_of(c), "kda: gate \"softplus\" takes no `lower_bound`");
  c = good;
  c.a_log.resize(1);
  EXPECT_EQ(error_of(c), "kda: `A_log` has 1 entries for 2 heads");
  c = good;
  c.dt_bias.resize(7);
  EXPECT_EQ(error_of(c), "kda: `dt_bias` has 7 entries, heads * key_dim = 8 are expected");
  c = good;
  c.heads = 0;
  c.dt_bias.clear();
  EXPECT_EQ(error_of(c), "kda: `heads` = 0, `key_dim` = 4 and `value_dim` = 6 must be in 1..2^20");
  TestOp op = good.op();
  op.set("gate", std::string("sigmoid"));
  EXPECT_EQ(op.infer().error().message, "kda: `gate` is \"sigmoid\", known are \"softplus\" and \"bounded\"");
  op.set("gate", std::string("bounded")).set("value_dim", std::int64_t{5});
  EXPECT_EQ(op.infer().error().message, "kda: `v` is f32[T, 12], f32[T, 10] is expected (heads * value_dim)");
  op = good.op();
  op.set("decay", std::string("row"));
  EXPECT_EQ(op.infer().error().message, "kda: `decay` is \"row\", known are \"channel\" and \"head\"");
  op.set("decay", std::string("head"));
  EXPECT_EQ(op.infer().error().message, "kda: `f` is f32[T, 8], f32[T, 2] is expected (heads)");
  op = good.op();
  op.set("key_heads", std::int64_t{1});
  EXPECT_EQ(op.infer().error().message, "kda: `q` is f32[T, 8], f32[T, 4] is expected (key_heads * key_dim)");
  for (const std::int64_t wrong : {-1, 3}) {
    op.set("key_heads", wrong);
    EXPECT_EQ(op.infer().error().message,
              "kda: `key_heads` = " + std::to_string(wrong) + " must divide `heads` = 2");
  }
  c = good;
  c.head_decay = true;
  EXPECT_EQ(error_of(c), "kda: `dt_bias` has 8 entries, heads = 2 are expected");
}

TEST(Kda, RefusesARateThatIsNotFinite) {
  Random random(11);
  Case c = make_case(random, kGates[4], 2, 4, 6);
  c.a_log[1] = 100.0F;
  const TestOp op = c.op();
  const NodeSpec spec = op.spec();
  const auto kernel =
      make_kda_cpu({spec, 0, op.weights(), {{0, DType::kF32}}, {}, testing::chosen_isa(), true, 1});
  ASSERT_FALSE(kernel.ok());
  EXPECT_EQ(kernel.error().message, "kda: the weight `A_log` has no finite exp at head 1");
}

}  // namespace
}  // namespace firstlight
