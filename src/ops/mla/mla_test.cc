#include <gtest/gtest.h>

#include <numeric>

#include "device/cpu/quantise.h"
#include "ops/mla/op.h"
#include "ops/mla/reference.h"
#include "ops/op_testing.h"

namespace firstlight {
namespace {

using testing::differing_words;
using testing::int_words;
using testing::Random;
using testing::relative_error;
using testing::TestOp;
using testing::TestSession;
using testing::TestSettings;
using testing::Words;

struct Case {
  std::int64_t heads, nope, rope, v, latent, tokens;
  std::int64_t width = 0;  // of `chosen`; 0: dense
  [[nodiscard]] double scale() const { return 1 / std::sqrt(static_cast<double>(nope + rope)); }
  [[nodiscard]] reference::MlaShape shape() const {
    const auto n = [](std::int64_t x) { return static_cast<std::size_t>(x); };
    return {n(heads), n(nope), n(rope), n(v), n(latent), scale()};
  }
};

struct Data {
  Words q, c, k_pe, kv_b;
  std::vector<std::int32_t> chosen;
  [[nodiscard]] std::vector<Words> inputs() const {
    std::vector<Words> in{q, c};
    if (!k_pe.empty()) in.push_back(k_pe);
    if (!chosen.empty()) in.push_back(int_words(chosen));
    return in;
  }
};

void round_all(Words& w) {
  for (float& x : w) x = bf16_to_f32(f32_to_bf16(x));
}

/// Ascending positions <= t, -1 padded; row t takes each with probability `share`, and its own always.
std::vector<std::int32_t> random_choice(Random& random, std::int64_t tokens, std::int64_t width,
                                        double share) {
  std::vector<std::int32_t> all;
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::vector<std::int32_t> row;
    for (std::int64_t s = 0; s <= t; ++s) {
      const bool room = static_cast<std::int64_t>(row.size()) + 1 < width;
      if (s == t || (room && random.uniform() < share)) row.push_back(static_cast<std::int32_t>(s));
    }
    row.resize(static_cast<std::size_t>(width), -1);
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

std::vector<std::int32_t> identity_choice(std::int64_t tokens, std::int64_t width) {
  std::vector<std::int32_t> all;
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t s = 0; s < width; ++s) all.push_back(s <= t ? static_cast<std::int32_t>(s) : -1);
  }
  return all;
}

/// Numbers of ordinary size; exact in bf16, so that both modes start from the same ones.
Data make_data(const Case& c, Random& random) {
  Data d{random.normals(c.tokens * c.heads * (c.nope + c.rope), 1.5),
         random.normals(c.tokens * c.latent),
         random.normals(c.tokens * c.rope),
         random.normals(c.heads * (c.nope + c.v) * c.latent, 1 / std::sqrt(static_cast<double>(c.latent))),
         {}};
  for (Words* w : {&d.q, &d.c, &d.k_pe, &d.kv_b}) round_all(*w);
  if (c.width > 0) d.chosen = random_choice(random, c.tokens, c.width, 0.4);
  return d;
}

TestOp make_op(const Case& c, const Words& kv_b, bool exact_in_bf16 = true) {
  TestOp op(mla_contract(), make_mla_cpu);
  op.value("q", c.heads * (c.nope + c.rope)).value("c", c.latent);
  if (c.rope > 0) op.value("k_pe", c.rope);
  op.weight("kv_b", {c.heads * (c.nope + c.v), c.latent}, kv_b, exact_in_bf16);
  if (c.width > 0) op.value("chosen", ValueType{DType::kI32, Rows::kTokens, {c.width}});
  op.set("heads", c.heads).set("nope_dim", c.nope).set("rope_dim", c.rope).set("v_dim", c.v);
  op.set("scale", c.scale());
  return op;
}

std::vector<double> expected(const Case& c, const Data& d) {
  return reference::mla(c.shape(), d.q, d.c, d.k_pe, d.kv_b, d.chosen);
}

/// The bytes of all pages of a sequence, in its order.
std::vector<std::uint8_t> cache_of(TestSession& session, std::size_t sequence) {
  std::vector<std::uint8_t> all;
  for (const std::int64_t id : session.sequence(sequence).pages) {
    all.insert(all.end(), session.page(id), session.page(id) + session.page_bytes());
  }
  return all;
}

constexpr int kNan = 0xff;  // fresh pages full of NaN: what was not written must not be read

const Case kCases[] = {
    {1, 8, 0, 8, 16, 5},        {1, 16, 4, 3, 24, 70},     {2, 7, 5, 9, 33, 67},
    {3, 12, 0, 20, 40, 130},    {4, 16, 8, 16, 64, 66},    {5, 3, 1, 2, 17, 65},
    {6, 8, 16, 4, 80, 64},      {7, 5, 3, 6, 15, 63},      {8, 32, 16, 24, 96, 150},
    {9, 4, 2, 33, 100, 20},     {3, 12, 4, 8, 40, 150, 7}, {9, 8, 0, 8, 31, 140, 100},
    {4, 16, 8, 16, 64, 80, 64}, {2, 5, 3, 4, 16, 90, 1},   {8, 8, 8, 8, 48, 70, 65},
};

TEST(Mla, AgreesWithTheExpandedReferenceOnEveryInstructionSetWithTheSameBits) {
  Random random(1);
  for (const Case& c : kCases) {
    SCOPED_TRACE(::testing::Message() << c.heads << " heads, latent " << c.latent << ", " << c.tokens
                                      << " tokens, width " << c.width);
    const Data d = make_data(c, random);
    const std::vector<double> reference = expected(c, d);
    for (const bool f32 : {true, false}) {
      Words first;
      for (const Isa isa : available_isas()) {
        TestSession session(make_op(c, d.kv_b), {.isa = isa, .f32 = f32, .stale = kNan});
        session.feed(session.add(d.inputs()), {c.tokens});
        if (first.empty()) first = session.output(0);
        EXPECT_EQ(differing_words(session.output(0), first), 0) << isa_name(isa);
      }
      // f32: chains of at most 200 products. bf16: q, c are exact here; u_h, the weights and m_h are rounded
      // (2^-9 each).
      EXPECT_LT(relative_error(first, reference), f32 ? 4e-6 : 6e-3);
    }
  }
}

TEST(Mla, WeightsThatAreNotExactInBf16KeepTheirDigitsInF32Mode) {
  Random random(2);
  const Case c{3, 12, 4, 8, 40, 30};
  Data d = make_data(c, random);
  d.kv_b = random.normals(static_cast<std::int64_t>(d.kv_b.size()), 0.2);
  TestSession session(make_op(c, d.kv_b, false), {.isa = detect()});
  session.feed(session.add(d.inputs()), {c.tokens});
  EXPECT_LT(relative_error(session.output(0), expected(c, d)), 4e-6);
}

TEST(Mla, LargeAndSmallMagnitudes) {
  Random random(3);
  const Case c{4, 16, 8, 16, 64, 200};
  for (const double size : {1e-30, 1e-12, 1e12, 1e30}) {
    Data d = make_data(c, random);  // scores stay of ordinary size, values do not
    for (float& x : d.c) x = static_cast<float>(x * size);
    for (float& x : d.k_pe) x = static_cast<float>(x * size);
    for (float& x : d.q) x = static_cast<float>(x / size);
    TestSession session(make_op(c, d.kv_b), {.isa = detect(), .stale = kNan});
    session.feed(session.add(d.inputs()), {c.tokens});
    EXPECT_LT(relative_error(session.output(0), expected(c, d)), 1e-5) << size;
  }
  // Scores of +-1e6: every query sees one row only, here its own.
  Data d = make_data(c, random);
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    for (std::int64_t i = 0; i < c.latent; ++i)
      d.c[static_cast<std::size_t>(t * c.latent + i)] = i % 2 == 0 ? 1 : -1;
    for (std::int64_t i = 0; i < c.rope; ++i) {
      d.k_pe[static_cast<std::size_t>(t * c.rope + i)] =
          static_cast<float>(1000 * t) * (i % 2 == 0 ? 1.F : -1.F);
    }
    d.c[static_cast<std::size_t>(t * c.latent)] = static_cast<float>(t);
    for (std::int64_t i = 0; i < c.heads * (c.nope + c.rope); ++i) {
      d.q[static_cast<std::size_t>(t * c.heads * (c.nope + c.rope) + i)] = i % 2 == 0 ? 1000.F : -1000.F;
    }
  }
  TestSession session(make_op(c, d.kv_b), {.isa = detect(), .stale = kNan});
  session.feed(session.add(d.inputs()), {c.tokens});
  EXPECT_LT(relative_error(session.output(0), expected(c, d)), 1e-5);
}

std::vector<std::vector<std::int64_t>> cuts_of(std::int64_t tokens) {
  std::vector<std::vector<std::int64_t>> cuts{std::vector<std::int64_t>(static_cast<std::size_t>(tokens), 1)};
  for (const std::int64_t cut : {1, 15, 16, 17, 63, 64, 65, 100}) cuts.push_back({cut, tokens - cut});
  cuts.push_back({50, 1, 1, 60, tokens - 112});
  return cuts;
}

TEST(Mla, BitsDoNotDependOnCutsOrThreads) {
  Random random(4);
  for (const Case& c :
       {Case{5, 12, 4, 8, 40, 201}, Case{9, 8, 0, 8, 31, 201}, Case{6, 8, 8, 4, 24, 201, 90}}) {
    const Data d = make_data(c, random);
    for (const bool f32 : {true, false}) {
      const TestOp op = make_op(c, d.kv_b);
      TestSession whole(op, {.isa = detect(), .f32 = f32, .stale = kNan});
      whole.feed(whole.add(d.inputs()), {c.tokens});
      for (const int threads : {1, 2, 3}) {
        for (const auto& cut : cuts_of(c.tokens)) {
          TestSession session(op, {.isa = detect(), .f32 = f32, .threads = threads, .stale = kNan});
          session.feed(session.add(d.inputs()), cut);
          EXPECT_EQ(differing_words(session.output(0), whole.output(0)), 0) << cut[0] << " " << threads;
          EXPECT_EQ(cache_of(session, 0), cache_of(whole, 0)) << cut[0] << " " << threads;
        }
      }
    }
  }
}

TEST(Mla, BitsDoNotDependOnTheStepsOtherSequences) {
  Random random(5);
  for (const std::int64_t width : {0, 70}) {
    const Case c{5, 12, 4, 8, 40, 160, width};
    const Data d = make_data(c, random);
    const Data other = make_data(c, random);
    for (const bool f32 : {true, false}) {
      const TestOp op = make_op(c, d.kv_b);
      TestSession alone(op, {.isa = detect(), .f32 = f32, .stale = kNan});
      alone.feed(alone.add(d.inputs()), {c.tokens});
      TestSession batch(op, {.isa = detect(), .f32 = f32, .threads = 2, .stale = kNan});
      const std::size_t a = batch.add(other.inputs());
      const std::size_t b = batch.add(d.inputs());
      const std::size_t e = batch.add(other.inputs());
      batch.step({{a, 70}});
      batch.step({{b, 3}, {a, 1}, {e, 60}});
      batch.step({{e, 1}, {b, 90}});
      for (int i = 0; i < 7; ++i) batch.step({{a, 1}, {b, 1}, {e, 1}});
      batch.step({{a, 50}, {b, 60}});
      EXPECT_EQ(differing_words(batch.output(b), alone.output(0)), 0);
      EXPECT_EQ(cache_of(batch, b), cache_of(alone, 0));
    }
  }
}

TEST(Mla, PartitionsOfALongContextMergeTheSameHoweverItIsCut) {
  Random random(6);
  const Case c{2, 6, 2, 5, 16, 1100};  // above four partitions of 256
  const Data d = make_data(c, random);
  const TestOp op = make_op(c, d.kv_b);
  for (const bool f32 : {true, false}) {
    TestSession whole(op, {.isa = detect(), .f32 = f32, .max_tokens = 1100, .stale = kNan});
    whole.feed(whole.add(d.inputs()), {c.tokens});
    EXPECT_LT(relative_error(whole.output(0), expected(c, d)), f32 ? 4e-6 : 1.5e-2);
    for (const Isa isa : available_isas()) {
      // One row or a few behind a long context: threads share its partitions.
      TestSession session(op, {.isa = isa, .f32 = f32, .threads = 3, .max_tokens = 1100, .stale = kNan});
      session.feed(session.add(d.inputs()), {1023, 1, 1, 5, 1, 69});
      EXPECT_EQ(differing_words(session.output(0), whole.output(0)), 0) << isa_name(isa);
    }
  }
}

TEST(Mla, EveryNumberOfHeadsAndRandomWidths) {
  Random random(11);
  for (std::int64_t heads = 1; heads <= 20; ++heads) {
    const bool dense = random.uniform() < 0.7;
    const Case c{heads,
                 random.between(1, 40),
                 random.uniform() < 0.3 ? 0 : random.between(1, 20),
                 random.between(1, 70),
                 random.between(1, 140),
                 random.between(1, 90),
                 dense ? 0 : random.between(1, 70)};
    SCOPED_TRACE(::testing::Message()
                 << heads << " heads of " << c.nope << " + " << c.rope << ", " << c.v << ", latent "
                 << c.latent << ", " << c.tokens << " tokens, width " << c.width);
    const Data d = make_data(c, random);
    const std::vector<double> reference = expected(c, d);
    for (const bool f32 : {true, false}) {
      const TestOp op = make_op(c, d.kv_b);
      TestSession whole(op, {.isa = detect(), .f32 = f32, .stale = kNan});
      whole.feed(whole.add(d.inputs()), {c.tokens});
      EXPECT_LT(relative_error(whole.output(0), reference), f32 ? 1e-5 : 2e-2);
      for (const Isa isa : available_isas()) {
        const std::int64_t cut = random.between(0, c.tokens - 1);
        TestSession session(op, {.isa = isa, .f32 = f32, .threads = 3, .stale = kNan});
        const std::size_t s = session.add(d.inputs());
        if (cut > 0) session.feed(s, {cut});
        session.feed(s, {c.tokens - cut});
        EXPECT_EQ(differing_words(session.output(s), whole.output(0)), 0) << isa_name(isa) << " " << cut;
      }
    }
  }
}

TEST(Mla, BitsOfTinyAndHugeNumbersAreTheSameEverywhere) {
  Random random(12);
  for (const double size : {1e-37, 1e-30, 1e-20, 1e15, 1e30}) {
    for (const double query : {1e-3, 1.0, 1e3}) {  // flat weights; one weight of 1 and many that vanish
      const Case c{3, 16, 8, 16, 72, 150};
      Data d = make_data(c, random);
      for (float& x : d.c) x = static_cast<float>(x * size);
      for (float& x : d.q) x = static_cast<float>(x * query / std::min(size, 1e30));
      for (Words* w : {&d.q, &d.c}) round_all(*w);
      const TestOp op = make_op(c, d.kv_b);
      for (const bool f32 : {true, false}) {
        TestSession whole(op, {.isa = Isa::kGeneric, .f32 = f32, .stale = kNan});
        whole.feed(whole.add(d.inputs()), {c.tokens});
        for (const Isa isa : available_isas()) {
          TestSession session(op, {.isa = isa, .f32 = f32, .threads = 2, .stale = kNan});
          session.feed(session.add(d.inputs()), {63, 3, 1, 80, 3});
          EXPECT_EQ(differing_words(session.output(0), whole.output(0)), 0) << isa_name(isa) << " " << size;
        }
      }
    }
  }
}

TestSettings expanded_settings(Isa isa, bool f32, int threads) {
  return {.isa = isa, .f32 = f32, .threads = threads, .stale = kNan, .run = {.expanded_prefill = true}};
}

TEST(Mla, AWeightThatVanishesLeavesItsNeighbourAlone) {
  // The second row scores 80 to 96 below the first, by another amount for each head: around exp(-87.3)
  // weights become too small for a bf16, whose place is beside that of the first row's.
  Random random(13);
  for (int round = 0; round < 8; ++round) {
    const Case c{64, 8, 4, 8, 16, 2};
    Data d = make_data(c, random);
    std::ranges::fill(d.q, 0.0F);
    for (std::int64_t h = 0; h < c.heads; ++h) {
      float* rotated = d.q.data() + (c.heads + h) * (c.nope + c.rope) + c.nope;
      const double below =
          (round == 0 ? 80 + static_cast<double>(h) / 4 : 86.6 + 1.4 * random.uniform()) / c.scale();
      rotated[0] = bf16_to_f32(f32_to_bf16(static_cast<float>(below)));
      rotated[1] = bf16_to_f32(f32_to_bf16(static_cast<float>(below - rotated[0])));
    }
    d.k_pe = {0, 0, 0, 0, -1, -1, 0, 0};
    const TestOp op = make_op(c, d.kv_b);
    for (const bool expanded : {false, true}) {
      TestSettings settings = expanded_settings(Isa::kGeneric, false, 1);
      settings.run.expanded_prefill = expanded;
      TestSession plain(op, settings);
      plain.feed(plain.add(d.inputs()), {c.tokens});
      EXPECT_LT(relative_error(plain.output(0), expected(c, d)), 0.01);
      for (const Isa isa : available_isas()) {
        settings.isa = isa;
        TestSession session(op, settings);
        session.feed(session.add(d.inputs()), {c.tokens});
        EXPECT_EQ(differing_words(session.output(0), plain.output(0)), 0) << isa_name(isa) << " " << expanded;
      }
    }
  }
}

TEST(MlaExpanded, AgreesWithTheReferenceOnEveryInstructionSetWithTheSameBits) {
  Random random(13);
  for (const Case& c : {Case{1, 8, 0, 8, 16, 5}, Case{2, 7, 5, 9, 33, 67}, Case{3, 12, 0, 20, 40, 300},
                        Case{5, 3, 1, 2, 17, 65}, Case{7, 5, 3, 66, 15, 63}, Case{4, 32, 16, 24, 96, 520}}) {
    SCOPED_TRACE(::testing::Message()
                 << c.heads << " heads, latent " << c.latent << ", " << c.tokens << " tokens");
    const Data d = make_data(c, random);
    const std::vector<double> reference = expected(c, d);
    const TestOp op = make_op(c, d.kv_b);
    for (const bool f32 : {true, false}) {
      TestSettings settings = expanded_settings(detect(), f32, 1);
      settings.max_tokens = 600;
      TestSession whole(op, settings);
      whole.feed(whole.add(d.inputs()), {c.tokens});
      EXPECT_LT(relative_error(whole.output(0), reference), f32 ? 1e-5 : 2e-2);
      for (const Isa isa : available_isas()) {
        settings.isa = isa;
        for (const int threads : {1, 2, 3}) {
          settings.threads = threads;
          TestSession session(op, settings);
          session.feed(session.add(d.inputs()),
                       threads == 2 ? std::vector<std::int64_t>{2, 1, c.tokens - 3}
                                    : std::vector<std::int64_t>{c.tokens / 2, c.tokens - c.tokens / 2});
          EXPECT_EQ(differing_words(session.output(0), whole.output(0)), 0)
              << isa_name(isa) << " " << threads;
        }
      }
    }
  }
}

/// Rows as 8 bits and a scale hold them.
Words in_bytes(const Case& c, const Words& kv_b) {
  Words held;
  std::vector<std::int8_t> codes(static_cast<std::size_t>(c.latent));
  for (std::size_t row = 0; row < kv_b.size(); row += codes.size()) {
    const float scale = quantise_int8(kv_b.data() + row, c.latent, codes.data());
    for (const std::int8_t code : codes) held.push_back(static_cast<float>(code) * scale);
  }
  return held;
}

TEST(Mla, InEightBitsBothFormsMultiplyWithTheRowsOfTheSameBytes) {
  Random random(16);
  for (const Case& c : kCases) {
    SCOPED_TRACE(::testing::Message() << c.heads << " heads, latent " << c.latent << ", " << c.tokens
                                      << " tokens, width " << c.width);
    const Data d = make_data(c, random);
    Data held = d;
    held.kv_b = in_bytes(c, d.kv_b);
    const std::vector<double> reference = expected(c, held);
    const TestOp op = make_op(c, d.kv_b);
    for (const bool expand : {false, true}) {
      TestSettings settings{.isa = detect(),
                            .f32 = false,
                            .stale = kNan,
                            .run = {.weights = HeldAs::kInt8, .expanded_prefill = expand}};
      TestSession whole(op, settings);
      whole.feed(whole.add(d.inputs()), {c.tokens});
      EXPECT_LT(relative_error(whole.output(0), reference), expand && c.width == 0 ? 2e-2 : 6e-3);
      for (const Isa isa : available_isas()) {
        settings.isa = isa;
        for (const int threads : {1, 2}) {
          settings.threads = threads;
          TestSession session(op, settings);
          session.feed(session.add(d.inputs()), {2, 1, c.tokens - 3});
          EXPECT_EQ(differing_words(session.output(0), whole.output(0)), 0)
              << isa_name(isa) << " " << threads << " " << expand;
        }
      }
      settings.run.weights = HeldAs::kStored;
      EXPECT_LT(whole.kernel().weight_bytes(), TestSession(op, settings).kernel().weight_bytes() * 3 / 4);
      // 4 bits are for linear layers: here they change nothing.
      settings.run.weights = HeldAs::kInt4;
      EXPECT_EQ(TestSession(op, settings).kernel().weight_bytes(), [&] {
        settings.run.weights = HeldAs::kStored;
        return TestSession(op, settings).kernel().weight_bytes();
      }());
    }
  }
}

TEST(MlaExpanded, AStepReadsTheWeightsOfItsForm) {
  Random random(19);
  const Case c{3, 12, 4, 8, 40, 1};
  for (const HeldAs weights : {HeldAs::kStored, HeldAs::kInt8}) {
    const TestOp op = make_op(c, make_data(c, random).kv_b);
    TestSession absorbed(op, {.f32 = false, .run = {.weights = weights}});
    TestSession both(op, {.f32 = false, .run = {.weights = weights, .expanded_prefill = true}});
    const std::int64_t one_form = absorbed.kernel().weight_bytes();
    EXPECT_EQ(absorbed.kernel().read_bytes(/*generated=*/true), one_form);
    EXPECT_EQ(absorbed.kernel().read_bytes(/*generated=*/false), one_form);
    EXPECT_GT(both.kernel().weight_bytes(), one_form);
    EXPECT_EQ(both.kernel().read_bytes(/*generated=*/true), one_form);
    EXPECT_GT(both.kernel().read_bytes(/*generated=*/false), 0);
    EXPECT_LT(both.kernel().read_bytes(/*generated=*/false), both.kernel().weight_bytes());
  }
}

TEST(MlaExpanded, GeneratedRowsAreAbsorbedWhateverSharesTheirStep) {
  Random random(14);
  const Case c{3, 12, 4, 8, 40, 100};
  const Data d = make_data(c, random);
  const Data other = make_data(c, random);
  const TestOp op = make_op(c, d.kv_b);
  for (const bool f32 : {true, false}) {
    TestSession absorbed(op, {.isa = detect(), .f32 = f32, .stale = kNan});
    absorbed.feed(absorbed.add(d.inputs()), {c.tokens});
    TestSession expanded(op, expanded_settings(detect(), f32, 1));
    expanded.feed(expanded.add(d.inputs()), {c.tokens});
    TestSession mixed(op, expanded_settings(detect(), f32, 2));
    const std::size_t a = mixed.add(other.inputs());
    const std::size_t b = mixed.add(d.inputs());
    const std::size_t e = mixed.add(other.inputs());
    mixed.step({{a, 20}, {b, 70}, {e, 3}});
    mixed.step({{e, 1, true}, {b, 1, true}, {a, 30}});
    mixed.step({{a, 1, true}, {b, 9, true}, {e, 1, true}});
    mixed.step({{b, 20}});
    const std::int64_t width = c.heads * c.v;
    for (std::int64_t i = 0; i < c.tokens * width; ++i) {
      const std::int64_t row = i / width;
      const Words& source = (row < 70 || row >= 80 ? expanded : absorbed).output(0);
      const auto at = static_cast<std::size_t>(i);
      ASSERT_EQ(std::bit_cast<std::uint32_t>(mixed.output(b)[at]), std::bit_cast<std::uint32_t>(source[at]))
          << "row " << row;
    }
  }
}

TEST(MlaExpanded, ChosenRowsStayAbsorbed) {
  Random random(15);
  const Case c{2, 8, 4, 8, 32, 90, 20};
  const Data d = make_data(c, random);
  const TestOp op = make_op(c, d.kv_b);
  TestSession absorbed(op, {.isa = detect(), .f32 = false, .stale = kNan});
  absorbed.feed(absorbed.add(d.inputs()), {c.tokens});
  TestSession asked(op, expanded_settings(detect(), false, 1));
  asked.feed(asked.add(d.inputs()), {c.tokens});
  EXPECT_EQ(differing_words(asked.output(0), absorbed.output(0)), 0);
}

TEST(Mla, AChoiceOfEverythingIsDenseToTheBit) {
  Random random(7);
  for (const std::int64_t tokens : {50, 64, 200, 1100}) {
    Case c{4, 12, 4, 8, 40, tokens};
    const Data d = make_data(c, random);
    TestSession dense(make_op(c, d.kv_b), {.isa = detect(), .threads = 2, .max_tokens = 1100, .stale = kNan});
    dense.feed(dense.add(d.inputs()), {tokens});
    for (const std::int64_t width : {tokens, tokens + 37}) {
      c.width = width;
      Data chosen = d;
      chosen.chosen = identity_choice(tokens, width);
      TestSession sparse(make_op(c, d.kv_b), {.isa = detect(), .max_tokens = 1100, .stale = kNan});
      sparse.feed(sparse.add(chosen.inputs()), {tokens});
      EXPECT_EQ(differing_words(sparse.output(0), dense.output(0)), 0) << tokens << " " << width;
    }
  }
}

TEST(Mla, AListEndsAtTheFirstEntryThatIsNotVisible) {
  Random random(8);
  const Case c{2, 8, 4, 8, 32, 10, 4};
  Data d = make_data(c, random);
  const auto run = [&] {
    TestSession session(make_op(c, d.kv_b), {.isa = detect(), .stale = kNan});
    session.feed(session.add(d.inputs()), {c.tokens});
    return session.output(0);
  };
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    const std::int32_t row[] = {0, static_cast<std::int32_t>(t + 1), 1 << 30, -1};
    std::copy_n(row, 4, d.chosen.begin() + t * 4);
  }
  const Words out = run();
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    const std::int32_t row[] = {0, -1, -1, -1};
    std::copy_n(row, 4, d.chosen.begin() + t * 4);
  }
  EXPECT_EQ(differing_words(out, run()), 0);
  std::fill(d.chosen.begin(), d.chosen.end(), -1);
  EXPECT_EQ(differing_words(run(), Words(out.size(), 0.0F)), 0);  // nothing attended
}

TEST(Mla, TheCacheHoldsRoundedRowsWithZeroPadding) {
  Random random(9);
  const Case c{2, 8, 5, 8, 37, 3};  // rows of 42, padded to 48
  Data d = make_data(c, random);
  d.c = random.normals(c.tokens * c.latent);  // not exact in bf16
  for (const bool f32 : {true, false}) {
    TestSession session(make_op(c, d.kv_b), {.isa = detect(), .f32 = f32, .stale = kNan});
    session.feed(session.add(d.inputs()), {c.tokens});
    const std::uint8_t* page = session.page(session.sequence(0).pages[0]) + session.places()[0].offset;
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      for (std::int64_t i = 0; i < 48; ++i) {
        const float x = i < 37   ? d.c[static_cast<std::size_t>(t * 37 + i)]
                        : i < 42 ? d.k_pe[static_cast<std::size_t>(t * 5 + i - 37)]
                                 : 0.0F;
        if (f32) {
          EXPECT_EQ(reinterpret_cast<const float*>(page)[t * 48 + i], x);
        } else {
          EXPECT_EQ(reinterpret_cast<const std::uint16_t*>(page)[t * 48 + i], f32_to_bf16(x));
        }
      }
    }
    EXPECT_EQ(page[3 * 48 * (f32 ? 4 : 2)], kNan);  // nothing behind the rows is touched
  }
}

TEST(Mla, PageOffsetsBeyond32Bits) {
  Random random(10);
  const Case c{2, 8, 4, 8, 500, 200};
  const Data d = make_data(c, random);
  const TestOp op = make_op(c, d.kv_b);
  for (const bool f32 : {true, false}) {
    TestSession near(op, {.isa = detect(), .f32 = f32, .max_context = 256, .max_sequences = 1});
    near.feed(near.add(d.inputs()), {c.tokens});
    // Four pages up to 12 x 10^9 elements apart.
    constexpr std::int64_t kSpread = 131072;
    TestSession far(
        op, {.isa = detect(), .f32 = f32, .max_context = 256, .max_sequences = 1, .page_spread = kSpread});
    far.feed(far.add(d.inputs()), {c.tokens});
    const auto& pages = far.sequence(0).pages;
    EXPECT_GT(*std::max_element(pages.begin(), pages.end()) * kPageTokens * 512, std::int64_t{1} << 32);
    EXPECT_EQ(differing_words(far.output(0), near.output(0)), 0);
  }
}

std::string infer_error(const TestOp& op) {
  const auto types = op.infer();
  return types.ok() ? "" : types.error().message;
}

TEST(Mla, ContractNamesWhatIsWrong) {
  const Case good{2, 8, 4, 6, 16, 1};
  const Words kv_b(static_cast<std::size_t>(2 * 14 * 16));
  EXPECT_EQ(infer_error(make_op(good, kv_b)), "");
  EXPECT_EQ(make_op(good, kv_b).infer()->front(), (ValueType{DType::kF32, Rows::kTokens, {12}}));
  EXPECT_EQ(infer_error(make_op(good, kv_b).set("heads", std::int64_t{3})),
            "mla: `q` has width 24, expected heads x (nope_dim + rope_dim) = 36");
  EXPECT_EQ(infer_error(make_op(good, kv_b).set("v_dim", std::int64_t{-1})),
            "mla: `v_dim` is -1, expected 1 to 1048576");
  EXPECT_EQ(infer_error(make_op(good, kv_b).set("heads", std::int64_t{1} << 62)),
            "mla: `heads` is 4611686018427387904, expected 1 to 1048576");
  EXPECT_EQ(infer_error(make_op(good, kv_b).set("v_dim", std::int64_t{7})),
            "mla: `kv_b` has shape [28, 16], expected [heads x (nope_dim + v_dim), width of c] = [30, 16]");
  EXPECT_EQ(
      infer_error(make_op(good, kv_b).set("rope_dim", std::int64_t{0}).set("nope_dim", std::int64_t{12})),
      "mla: `k_pe` is given although `rope_dim` is 0");
  TestOp no_pe(mla_contract(), make_mla_cpu);
  no_pe.value("q", 24).value("c", 16).weight("kv_b", {28, 16}, kv_b);
  no_pe.set("heads", std::int64_t{2}).set("nope_dim", std::int64_t{8}).set("rope_dim", std::int64_t{4});
  no_pe.set("v_dim", std::int64_t{6}).set("scale", 1.0);
  EXPECT_EQ(infer_error(no_pe), "mla: `k_pe` is missing although `rope_dim` is not 0");
  EXPECT_EQ(infer_error(make_op(good, kv_b).value("chosen", 8)),
            "mla: `chosen` is f32[T, 8], expected i32[T, width]");
}

TEST(Mla, CostCountsPairsAndCache) {
  const Case dense{2, 8, 4, 6, 16, 1};
  const Words kv_b(static_cast<std::size_t>(2 * 14 * 16));
  const Cost a = mla_contract().cost(make_op(dense, kv_b).spec(), {.tokens = 1, .sampled = 1, .context = 99});
  EXPECT_EQ(a.flops, 2 * 2 * 16 * 14 + 2 * 2 * (20 + 16) * 100);
  EXPECT_EQ(a.cache_bytes, 2 * 20 * 100);
  // Expanded: keys and values of all 100 positions, then pairs of 8 + 4 and 6 channels.
  const Cost e = mla_expanded_cost(make_op(dense, kv_b).spec(), {.tokens = 1, .sampled = 1, .context = 99});
  EXPECT_EQ(e.flops, 2 * 2 * 16 * 14 * 100 + 2 * 2 * (12 + 6) * 100);
  EXPECT_EQ(e.cache_bytes, a.cache_bytes);
  const Case sparse{2, 8, 4, 6, 16, 1, 10};
  const Cost b =
      mla_contract().cost(make_op(sparse, kv_b).spec(), {.tokens = 1, .sampled = 1, .context = 99});
  EXPECT_EQ(b.cache_bytes, 2 * 20 * 10);
  const StepShape in_f32{.tokens = 1, .sampled = 1, .context = 99, .f32 = true};
  EXPECT_EQ(mla_contract().cost(make_op(dense, kv_b).spec(), in_f32).cache_bytes, 2 * a.cache_bytes);
  EXPECT_EQ(mla_expanded_cost(make_op(dense, kv_b).spec(), in_f32).cache_bytes, 2 * e.cache_bytes);
}

}  // namespace
}  // namespace firstlight
