#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "ops/attention/op.h"
#include "ops/attention/reference.h"
#include "ops/op_testing.h"

namespace firstlight {
namespace {

using testing::differing_words;
using testing::Random;
using testing::relative_error;
using testing::TestOp;
using testing::TestSession;
using testing::TestSettings;
using testing::Words;

struct Case {
  std::int64_t heads, kv_heads, key, value, tokens;
  std::int64_t window = 0;
  bool sinks = false;
  double softcap = 0;
  [[nodiscard]] double scale() const { return 1 / std::sqrt(static_cast<double>(key)); }
  [[nodiscard]] reference::AttentionShape shape() const {
    const auto n = [](std::int64_t x) { return static_cast<std::size_t>(x); };
    return {n(heads), n(kv_heads), n(key), n(value), scale(), n(window), softcap};
  }
  friend std::ostream& operator<<(std::ostream& to, const Case& c) {
    return to << c.heads << "/" << c.kv_heads << " heads, " << c.key << " x " << c.value << ", " << c.tokens
              << " tokens, window " << c.window << (c.sinks ? ", sinks" : "") << ", softcap " << c.softcap;
  }
};

struct Data {
  Words q, k, v, sinks;
  [[nodiscard]] std::vector<Words> inputs() const { return {q, k, v}; }
};

void round_all(Words& w) {
  for (float& x : w) x = bf16_to_f32(f32_to_bf16(x));
}

/// Numbers of ordinary size; exact in bf16, so that both modes start from the same ones.
Data make_data(const Case& c, Random& random) {
  Data d{random.normals(c.tokens * c.heads * c.key, 1.5),
         random.normals(c.tokens * c.kv_heads * c.key),
         random.normals(c.tokens * c.kv_heads * c.value),
         {}};
  for (Words* w : {&d.q, &d.k, &d.v}) round_all(*w);
  if (c.sinks) d.sinks = random.normals(c.heads, 2);
  return d;
}

TestOp make_op(const Case& c, const Words& sinks = {}) {
  TestOp op(attention_contract(), make_attention_cpu);
  op.value("q", c.heads * c.key).value("k", c.kv_heads * c.key).value("v", c.kv_heads * c.value);
  if (c.sinks) op.weight("sinks", {c.heads}, sinks);
  op.set("heads", c.heads).set("kv_heads", c.kv_heads).set("key_dim", c.key).set("value_dim", c.value);
  op.set("scale", c.scale()).set("window", c.window).set("softcap", c.softcap);
  return op;
}

std::vector<double> expected(const Case& c, const Data& d) {
  return reference::attention(c.shape(), d.q, d.k, d.v, d.sinks);
}

/// The bytes of all pages of a sequence, in its order.
std::vector<std::uint8_t> cache_of(TestSession& session, std::size_t sequence) {
  std::vector<std::uint8_t> all;
  for (const std::int64_t id : session.sequence(sequence).pages) {
    all.insert(all.end(), session.page(id), session.page(id) + session.page_bytes());
  }
  return all;
}

/// f32: chains of at most 256 products. bf16: q, k and v are exact here, the weights are rounded (2^-9 each).
double tolerance(bool f32) { return f32 ? 4e-6 : 1e-2; }

constexpr int kNan = 0xff;  // fresh pages full of NaN: what was not written must not be read

/// A sequence fed at once.
Words run(const Case& c, const Data& d, const TestSettings& settings) {
  TestSession session(make_op(c, d.sinks), settings);
  session.feed(session.add(d.inputs()), {c.tokens});
  return session.output(0);
}

const Case kCases[] = {
    {1, 1, 1, 1, 1},
    {1, 1, 8, 8, 5},
    {2, 1, 5, 24, 70},
    {3, 3, 16, 3, 67},
    {3, 1, 17, 16, 130, 0, true},
    {4, 4, 24, 33, 66},
    {5, 1, 80, 80, 65, 64, true},
    {6, 2, 64, 48, 64, 63},
    {7, 1, 31, 100, 63, 1},
    {8, 2, 128, 128, 150, 65, true},
    {8, 1, 16, 16, 140, 0, true, 4.0},
    {12, 4, 40, 40, 190, 10, false, 50.0},
    {16, 1, 32, 24, 200, 128},
    {16, 8, 256, 256, 80, 0, true},
    {71, 1, 12, 20, 90},  // more heads of a kv head than an item takes
};

TEST(Attention, AgreesWithTheReferenceOnEveryInstructionSetWithTheSameBits) {
  Random random(1);
  for (const Case& c : kCases) {
    SCOPED_TRACE(::testing::Message() << c);
    const Data d = make_data(c, random);
    const std::vector<double> reference = expected(c, d);
    for (const bool f32 : {true, false}) {
      Words first;
      for (const Isa isa : available_isas()) {
        const Words out = run(c, d, {.isa = isa, .f32 = f32, .stale = kNan});
        if (first.empty()) first = out;
        EXPECT_EQ(differing_words(out, first), 0) << isa_name(isa);
      }
      EXPECT_LT(relative_error(first, reference), tolerance(f32)) << f32;
    }
  }
}

TEST(Attention, EveryRatioOfHeads) {
  Random random(2);
  for (std::int64_t ratio = 1; ratio <= 17; ++ratio) {
    const Case c{2 * ratio, 2, 20, 12, 75, ratio % 3 == 0 ? 30 : 0, ratio % 2 == 0};
    SCOPED_TRACE(::testing::Message() << c);
    const Data d = make_data(c, random);
    const bool f32 = ratio % 4 < 2;
    EXPECT_LT(relative_error(run(c, d, {.f32 = f32, .stale = kNan}), expected(c, d)), tolerance(f32));
  }
}

TEST(Attention, WindowsWithEdgesAtAndAroundPagesAndPartitions) {
  Random random(3);
  Case c{4, 2, 8, 8, 1200};
  const Data d = make_data(c, random);
  for (const std::int64_t window : {1, 2, 15, 63, 64, 65, 128, 1000, 1023, 1024, 1025, 1199, 1200, 5000}) {
    c.window = window;
    const Words out = run(c, d, {.isa = detect(), .threads = 2, .max_tokens = 1200, .stale = kNan});
    EXPECT_LT(relative_error(out, expected(c, d)), 4e-6) << window;
  }
  c.window = 1;  // a row alone with itself
  const Words out = run(c, d, {.isa = detect(), .max_tokens = 1200});
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    for (std::int64_t i = 0; i < c.heads * c.value; ++i) {
      const std::int64_t g = i / c.value / 2;
      EXPECT_EQ(out[static_cast<std::size_t>(t * c.heads * c.value + i)],
                d.v[static_cast<std::size_t>((t * c.kv_heads + g) * c.value + i % c.value)]);
    }
  }
}

TEST(Attention, AWindowThatHoldsEverythingIsNoneToTheBit) {
  Random random(4);
  Case c{4, 2, 16, 16, 1100};
  const Data d = make_data(c, random);
  const Words dense = run(c, d, {.max_tokens = 1100, .stale = kNan});
  for (const std::int64_t window : {std::int64_t{1100}, std::int64_t{1} << 40}) {
    c.window = window;
    EXPECT_EQ(differing_words(run(c, d, {.max_tokens = 1100, .stale = kNan}), dense), 0);
  }
}

TEST(Attention, WhatIsOutsideTheWindowHasNoPart) {
  Random random(5);
  const Case c{4, 2, 16, 16, 400, 70};
  const Data d = make_data(c, random);
  Data other = d;
  // Infinite keys and values before the windows of the rows from 200 on.
  for (std::int64_t i = 0; i < 131 * c.kv_heads * c.key; ++i) {
    other.k[static_cast<std::size_t>(i)] = other.v[static_cast<std::size_t>(i)] = INFINITY;
  }
  for (const bool f32 : {true, false}) {
    Words a = run(c, d, {.f32 = f32, .stale = kNan});
    Words b = run(c, other, {.f32 = f32, .stale = kNan});
    a.erase(a.begin(), a.begin() + 200 * c.heads * c.value);
    b.erase(b.begin(), b.begin() + 200 * c.heads * c.value);
    EXPECT_EQ(differing_words(a, b), 0);
  }
}

TEST(Attention, LaterRowsOfAChunkHaveNoPart) {
  Random random(6);
  for (const std::int64_t ratio : {1, 3, 4}) {
    const Case c{2 * ratio, 2, 16, 16, 150};
    const Data d = make_data(c, random);
    Data other = d;
    for (std::size_t i = static_cast<std::size_t>(101 * c.kv_heads * c.key); i < d.k.size(); ++i) {
      other.k[i] = other.v[i] = i % 2 == 0 ? INFINITY : NAN;
    }
    for (const bool f32 : {true, false}) {
      Words a = run(c, d, {.f32 = f32, .stale = kNan});
      Words b = run(c, other, {.f32 = f32, .stale = kNan});
      a.resize(static_cast<std::size_t>(101 * c.heads * c.value));
      b.resize(a.size());
      EXPECT_EQ(differing_words(a, b), 0) << f32;
    }
  }
}

TEST(Attention, LargeAndSmallMagnitudes) {
  Random random(7);
  const Case c{4, 2, 16, 16, 200, 0, true};
  for (const double size : {1e-30, 1e-12, 1e12, 1e30}) {
    Data d = make_data(c, random);  // scores stay of ordinary size, values do not
    for (float& x : d.k) x = static_cast<float>(x * size);
    for (float& x : d.v) x = static_cast<float>(x * size);
    for (float& x : d.q) x = static_cast<float>(x / size);
    EXPECT_LT(relative_error(run(c, d, {.stale = kNan}), expected(c, d)), 1e-5) << size;
  }
}

TEST(Attention, HugeScoresPickOneRow) {
  Random random(8);
  for (const double sign : {1.0, -1.0}) {  // the last position wins, or the first
    for (const std::int64_t window : {0, 100}) {
      const Case c{4, 2, 16, 16, 200, window};
      Data d = make_data(c, random);
      for (float& x : d.q) x = 1000;
      for (std::size_t i = 0; i < d.k.size(); ++i) {
        const std::size_t position = i / 32;
        d.k[i] = static_cast<float>(sign * 1000 * static_cast<double>(position));
      }
      EXPECT_LT(relative_error(run(c, d, {.stale = kNan}), expected(c, d)), 1e-5) << sign << " " << window;
    }
  }
}

TEST(Attention, SinksOfAnySize) {
  Random random(9);
  const Case c{6, 2, 16, 16, 150, 40, true};
  Data d = make_data(c, random);
  // In order: no sink, almost none, ordinary, far above every score, and so large that nothing is left.
  d.sinks = {-std::numeric_limits<float>::infinity(), -1e30F, 0.5F, 30.0F, 1e30F, -80.0F};
  const Words out = run(c, d, {.stale = kNan});
  EXPECT_LT(relative_error(out, expected(c, d)), 4e-6);
  Case without = c;
  without.sinks = false;
  const Words none = run(without, d, {.stale = kNan});
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t head = i / 16 % 6;
    if (head <= 1) {
      EXPECT_EQ(out[i], none[i]);
    }
    if (head == 4) {
      EXPECT_EQ(out[i], 0.0F);
    }
  }
}

TEST(Attention, ASoftcapBoundsTheScores) {
  Random random(10);
  for (const double softcap : {0.5, 20.0, 1e6}) {
    const Case c{4, 2, 16, 16, 100, 0, true, softcap};
    Data d = make_data(c, random);
    for (float& x : d.q) x *= 10;
    EXPECT_LT(relative_error(run(c, d, {.stale = kNan}), expected(c, d)), 1e-5) << softcap;
  }
}

std::vector<std::vector<std::int64_t>> cuts_of(std::int64_t tokens) {
  std::vector<std::vector<std::int64_t>> cuts{std::vector<std::int64_t>(static_cast<std::size_t>(tokens), 1)};
  for (const std::int64_t cut : {1, 15, 16, 17, 63, 64, 65, 100}) cuts.push_back({cut, tokens - cut});
  cuts.push_back({50, 1, 1, 60, tokens - 112});
  return cuts;
}

TEST(Attention, BitsDoNotDependOnCutsOrThreads) {
  Random random(11);
  for (const Case& c : {Case{5, 5, 12, 20, 201, 0, true}, Case{6, 2, 16, 16, 201, 70},
                        Case{16, 1, 24, 8, 201, 3, true, 5.0}, Case{8, 2, 20, 40, 201}}) {
    SCOPED_TRACE(::testing::Message() << c);
    const Data d = make_data(c, random);
    for (const bool f32 : {true, false}) {
      const TestOp op = make_op(c, d.sinks);
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

TEST(Attention, BitsDoNotDependOnTheStepsOtherSequences) {
  Random random(12);
  for (const std::int64_t window : {0, 50}) {
    const Case c{6, 2, 12, 20, 160, window, true};
    const Data d = make_data(c, random);
    const Data other = make_data(c, random);
    for (const bool f32 : {true, false}) {
      const TestOp op = make_op(c, d.sinks);
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

TEST(Attention, PartitionsOfALongContextMergeTheSameHoweverItIsCut) {
  Random random(13);
  // Above two partitions of 1024. Windows whose first partition differs between the rows of a step.
  for (const std::int64_t window : {0, 1050, 30}) {
    const Case c{4, 2, 6, 5, 2100, window, true};
    const Data d = make_data(c, random);
    const TestOp op = make_op(c, d.sinks);
    const std::vector<double> reference = expected(c, d);
    for (const bool f32 : {true, false}) {
      TestSession whole(op, {.isa = detect(), .f32 = f32, .max_tokens = 2100, .stale = kNan});
      whole.feed(whole.add(d.inputs()), {c.tokens});
      EXPECT_LT(relative_error(whole.output(0), reference), tolerance(f32));
      int threads = 1;
      for (const Isa isa : available_isas()) {
        TestSession session(op,
                            {.isa = isa, .f32 = f32, .threads = threads, .max_tokens = 2100, .stale = kNan});
        session.feed(session.add(d.inputs()), {1023, 1, 1, 1000, 1, 74});
        EXPECT_EQ(differing_words(session.output(0), whole.output(0)), 0) << isa_name(isa) << " " << f32;
        threads += 2;
      }
    }
  }
}

TEST(Attention, RandomShapesHaveTheSameBitsInEveryForm) {
  Random random(17);
  for (int i = 0; i < 24; ++i) {
    const std::int64_t kv_heads = random.between(1, 4);
    const Case c{kv_heads * random.between(1, 19), kv_heads,
                 random.between(1, 100),           random.between(1, 150),
                 random.between(1, 150),           random.uniform() < 0.5 ? 0 : random.between(1, 100),
                 random.uniform() < 0.5,           random.uniform() < 0.3 ? 5.0 : 0.0};
    SCOPED_TRACE(::testing::Message() << c);
    const Data d = make_data(c, random);
    const std::vector<double> reference = expected(c, d);
    const TestOp op = make_op(c, d.sinks);
    for (const bool f32 : {true, false}) {
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
        EXPECT_EQ(cache_of(session, s), cache_of(whole, 0)) << isa_name(isa) << " " << cut;
      }
    }
  }
}

TEST(Attention, BitsOfTinyAndHugeNumbersAreTheSameEverywhere) {
  Random random(18);
  for (const double size : {1e-39, 1e-37, 1e-30, 1e-20, 1e15, 1e30}) {
    for (const double query : {1e-3, 1.0, 1e3}) {  // flat weights; one weight of 1 and many that vanish
      const Case c{6, 2, 18, 24, 150};
      Data d = make_data(c, random);
      for (Words* w : {&d.k, &d.v}) {
        for (float& x : *w) x = static_cast<float>(x * size);
      }
      for (float& x : d.q) x = static_cast<float>(x * query / std::max(size, 1e-35));
      for (Words* w : {&d.q, &d.k, &d.v}) round_all(*w);
      const TestOp op = make_op(c);
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

TEST(Attention, MorePartitionsThanAWaveHolds) {
  Random random(14);
  // 17 partitions of 2 kv heads, of which one thread holds 8 at a time if its steps have one row.
  const Case c{2, 2, 2, 3, 16450};
  const Data d = make_data(c, random);
  const TestOp op = make_op(c);
  TestSettings settings{
      .isa = detect(), .threads = 3, .max_tokens = 16450, .max_context = 16512, .max_sequences = 1};
  TestSession whole(op, settings);
  whole.feed(whole.add(d.inputs()), {c.tokens});
  settings.threads = 1;
  settings.max_tokens = 1;
  TestSession steps(op, settings);
  TestSession::Sequence& s = steps.sequence(steps.add(d.inputs()));
  s.position = 16380;  // with the cache of the other session up to here
  s.pages = whole.sequence(0).pages;
  for (const std::int64_t id : s.pages)
    std::memcpy(steps.page(id), whole.page(id), static_cast<std::size_t>(steps.page_bytes()));
  steps.feed(0, std::vector<std::int64_t>(static_cast<std::size_t>(c.tokens - s.position), 1));
  const Words last(whole.output(0).end() - static_cast<std::ptrdiff_t>(steps.output(0).size()),
                   whole.output(0).end());
  EXPECT_EQ(differing_words(steps.output(0), last), 0);
}

TEST(Attention, TheCacheHoldsRoundedPaddedCells) {
  Random random(15);
  const Case c{2, 2, 5, 70, 3};
  Data d = make_data(c, random);
  d.k = random.normals(c.tokens * 2 * 5);  // not exact in bf16
  d.v = random.normals(c.tokens * 2 * 70);
  for (const bool f32 : {true, false}) {
    TestSession session(make_op(c), {.f32 = f32, .stale = kNan});
    session.feed(session.add(d.inputs()), {c.tokens});
    const std::uint8_t* page = session.page(session.sequence(0).pages[0]);
    const std::int64_t elements = f32 ? 1 : 2;  // of a cell
    const auto check_element = [&](std::size_t cache, std::int64_t at, float x) {
      const std::uint8_t* base = page + session.places()[cache].offset;
      if (f32) {
        EXPECT_EQ(reinterpret_cast<const float*>(base)[at], x);
      } else {
        EXPECT_EQ(reinterpret_cast<const std::uint16_t*>(base)[at], f32_to_bf16(x));
      }
    };
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      for (std::int64_t h = 0; h < 2; ++h) {
        const std::int64_t keys = f32 ? 5 : 6;
        for (std::int64_t i = 0; i < keys; ++i) {
          const std::int64_t cell = (h * keys / elements + i / elements) * 64 + t;
          check_element(0, cell * elements + i % elements,
                        i < 5 ? d.k[static_cast<std::size_t>(t * 10 + h * 5 + i)] : 0.0F);
        }
        for (std::int64_t i = 0; i < 80; ++i) {
          // A panel of 64 columns, then one of 16.
          const std::int64_t first = i / 64 * 64;
          const std::int64_t cell =
              (h * 80 + first) * 64 / elements + t / elements * (first == 0 ? 64 : 16) + i - first;
          check_element(1, cell * elements + t % elements,
                        i < 70 ? d.v[static_cast<std::size_t>((t * 2 + h) * 70 + i)] : 0.0F);
        }
      }
    }
    // Nothing behind the rows is touched.
    EXPECT_EQ(page[session.places()[0].offset + 3 * 4], kNan);
    EXPECT_EQ(page[session.places()[1].offset + (f32 ? 3 * 64 * 4 : 64 * 4 + 2)], kNan);
  }
}

TEST(Attention, PageOffsetsBeyond32Bits) {
  Random random(16);
  const Case c{2, 1, 256, 250, 200};
  const Data d = make_data(c, random);
  const TestOp op = make_op(c);
  for (const bool f32 : {true, false}) {
    TestSession near(op, {.f32 = f32, .max_context = 256, .max_sequences = 1});
    near.feed(near.add(d.inputs()), {c.tokens});
    // Four pages up to 12 x 10^9 elements apart.
    constexpr std::int64_t kSpread = 131072;
    TestSession far(op, {.f32 = f32, .max_context = 256, .max_sequences = 1, .page_spread = kSpread});
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

TEST(Attention, ContractNamesWhatIsWrong) {
  const Case good{4, 2, 8, 6, 1, 0, true};
  const Words sinks(4);
  const auto with = [&](const char* name, Attribute value) {
    return infer_error(make_op(good, sinks).set(name, std::move(value)));
  };
  EXPECT_EQ(infer_error(make_op(good, sinks)), "");
  EXPECT_EQ(make_op(good, sinks).infer()->front(), (ValueType{DType::kF32, Rows::kTokens, {24}}));
  EXPECT_EQ(with("heads", std::int64_t{0}), "attention: `heads` is 0, expected 1 to 1048576");
  EXPECT_EQ(with("kv_heads", std::int64_t{1} << 62),
            "attention: `kv_heads` is 4611686018427387904, expected 1 to 1048576");
  EXPECT_EQ(with("key_dim", std::int64_t{0}), "attention: `key_dim` is 0, expected 1 to 1048576");
  EXPECT_EQ(with("value_dim", std::int64_t{-1}), "attention: `value_dim` is -1, expected 1 to 1048576");
  EXPECT_EQ(with("window", std::int64_t{-1}), "attention: `window` is -1, expected 0 to 1099511627776");
  EXPECT_EQ(with("kv_heads", std::int64_t{3}),
            "attention: `heads` is 4, expected a multiple of `kv_heads` = 3");
  EXPECT_EQ(with("heads", std::int64_t{6}), "attention: `q` has width 32, expected heads x key_dim = 48");
  EXPECT_EQ(with("kv_heads", std::int64_t{1}),
            "attention: `k` has width 16, expected kv_heads x key_dim = 8");
  EXPECT_EQ(with("value_dim", std::int64_t{7}),
            "attention: `v` has width 12, expected kv_heads x value_dim = 14");
  EXPECT_EQ(with("scale", std::nan("")), "attention: `scale` is nan, expected a finite number");
  EXPECT_EQ(with("softcap", -1.0), "attention: `softcap` is -1, expected 0 or more, finite");
  TestOp op(attention_contract(), make_attention_cpu);
  op.value("q", ValueType{DType::kI32, Rows::kTokens, {32}}).value("k", 16).value("v", 12);
  op.weight("sinks", {3}, Words(3));
  op.set("heads", std::int64_t{4}).set("kv_heads", std::int64_t{2}).set("scale", 1.0);
  op.set("key_dim", std::int64_t{8}).set("value_dim", std::int64_t{6});
  EXPECT_EQ(infer_error(op), "attention: `q` is i32[T, 32], expected f32[T, ...]");
  Case many = good;
  many.sinks = false;
  EXPECT_EQ(infer_error(make_op(many).weight("sinks", {3}, Words(3))),
            "attention: `sinks` has shape [3], expected [heads] = [4]");
}

TEST(Attention, CostCountsPairsAndCache) {
  const auto cost = [](const Case& c, StepShape step) {
    return attention_contract().cost(make_op(c).spec(), step);
  };
  const Cost all = cost({4, 2, 8, 6, 1}, {.tokens = 1, .sampled = 1, .context = 99});
  EXPECT_EQ(all.flops, 2 * 4 * (8 + 6) * 100);
  EXPECT_EQ(all.cache_bytes, 2 * 2 * (8 + 6) * 100);
  const Cost in_f32 = cost({4, 2, 8, 6, 1}, {.tokens = 1, .sampled = 1, .context = 99, .f32 = true});
  EXPECT_EQ(in_f32.cache_bytes, 2 * all.cache_bytes);
  const Cost window = cost({4, 2, 8, 6, 1, 10}, {.tokens = 1, .sampled = 1, .context = 99});
  EXPECT_EQ(window.flops, 2 * 4 * (8 + 6) * 10);
  EXPECT_EQ(window.cache_bytes, 2 * 2 * (8 + 6) * 10);
  // Rows at 8, 9, 10, 11 see 9, 10, 10, 10 positions.
  const Cost growing = cost({4, 2, 8, 6, 1, 10}, {.tokens = 4, .sampled = 1, .context = 8});
  EXPECT_EQ(growing.flops, 2 * 4 * (8 + 6) * 39);
}

}  // namespace
}  // namespace firstlight
