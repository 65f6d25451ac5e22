#include <gtest/gtest.h>

#include <algorithm>

#include "ops/dsa_index/op.h"
#include "ops/dsa_index/reference.h"
#include "ops/op_testing.h"
#include "ops/top_k.h"

namespace firstlight {
namespace {

using testing::differing_words;
using testing::Random;
using testing::TestOp;
using testing::TestSession;
using testing::TestSettings;
using testing::Words;
using testing::words_int;

struct Case {
  std::int64_t heads, dim, topk, tokens;
  std::int64_t kpool = 1;
  bool tail = true;
  [[nodiscard]] reference::DsaIndexShape shape() const {
    const auto n = [](std::int64_t x) { return static_cast<std::size_t>(x); };
    return {n(heads), n(dim), n(topk), n(kpool), tail};
  }
  [[nodiscard]] std::int64_t width() const { return static_cast<std::int64_t>(shape().width()); }
};

struct Data {
  Words q, k, w, gate, ape;
  [[nodiscard]] std::vector<Words> inputs() const {
    std::vector<Words> in{q, k, w};
    if (!gate.empty()) in.push_back(gate);
    return in;
  }
};

Data normal_data(const Case& c, Random& random) {
  Data d{random.normals(c.tokens * c.heads * c.dim),
         random.normals(c.tokens * c.dim),
         random.normals(c.tokens * c.heads),
         {},
         {}};
  if (c.kpool > 1) {
    d.gate = random.normals(c.tokens * c.dim, 2.0);
    d.ape = random.normals(c.kpool * c.dim);
  }
  return d;
}

/// Integers so small that all scores are exact in f32 and bf16, so choices must equal the reference's,
/// ties included. Needs heads x dim = 4^n, that the constant factor is a power of two.
Data exact_data(const Case& c, Random& random) {
  const auto draw = [&](std::int64_t count, std::int64_t largest) {
    Words out(static_cast<std::size_t>(count));
    for (float& x : out) x = static_cast<float>(random.between(-largest, largest));
    return out;
  };
  Data d{draw(c.tokens * c.heads * c.dim, 2), draw(c.tokens * c.dim, 1), draw(c.tokens * c.heads, 2), {}, {}};
  if (c.kpool > 1) {
    // Gates that pick one token of a pool in each channel: the others weigh exp(-10000), exactly 0.
    d.gate.assign(static_cast<std::size_t>(c.tokens * c.dim), 0.0F);
    d.ape.assign(static_cast<std::size_t>(c.kpool * c.dim), 0.0F);
    for (std::int64_t i = 0; i < c.tokens * c.dim; ++i) {
      const std::int64_t token = i / c.dim;
      d.gate[static_cast<std::size_t>(i)] =
          (token / c.kpool + i % c.dim) % c.kpool == token % c.kpool ? 1e4F : 0.F;
    }
  }
  return d;
}

TestOp make_op(const Case& c, const Words& ape) {
  TestOp op(dsa_index_contract(), make_dsa_index_cpu);
  op.value("q", c.heads * c.dim).value("k", c.dim).value("w", c.heads);
  if (c.kpool > 1) op.value("gate", c.dim).weight("ape", {c.kpool, c.dim}, ape);
  op.set("heads", c.heads)
      .set("dim", c.dim)
      .set("topk", c.topk)
      .set("kpool", c.kpool)
      .set("select_tail", c.tail);
  return op;
}

std::vector<std::int32_t> expected(const Case& c, const Data& d) {
  return reference::dsa_index(c.shape(), d.q, d.k, d.w, d.gate, d.ape);
}

std::vector<std::int32_t> run_whole(const Case& c, const Data& d, TestSettings settings) {
  settings.max_tokens = std::max<std::int64_t>(settings.max_tokens, c.tokens);
  settings.stale = 0xff;
  TestSession session(make_op(c, d.ape), settings);
  session.feed(session.add(d.inputs()), {c.tokens});
  return words_int(session.output(0));
}

const Case kExact[] = {
    {1, 4, 3, 70},        {4, 16, 8, 200},           {2, 8, 64, 65},     {4, 4, 1, 130},
    {8, 8, 40, 300},      {16, 16, 1000, 150},       {16, 1, 5, 90},     {4, 16, 8, 203, 2},
    {4, 16, 8, 202, 4},   {4, 16, 8, 201, 4, false}, {2, 8, 64, 300, 8}, {1, 4, 16, 100, 16, false},
    {4, 4, 64, 260, 64},  {8, 2, 2, 67, 2, false},   {1, 1, 4, 66, 4},   {4, 16, 512, 203, 4},
    {1, 16, 32, 190, 32},
};

TEST(DsaIndex, ChoosesWhatTheReferenceChoosesTiesIncluded) {
  Random random(1);
  for (const Case& c : kExact) {
    const Data d = exact_data(c, random);
    const std::vector<std::int32_t> reference = expected(c, d);
    for (const bool f32 : {true, false}) {
      for (const Isa isa : available_isas()) {
        EXPECT_EQ(run_whole(c, d, {.isa = isa, .f32 = f32}), reference)
            << isa_name(isa) << " heads " << c.heads << " dim " << c.dim << " topk " << c.topk << " kpool "
            << c.kpool;
      }
    }
  }
}

TEST(DsaIndex, RealNumbersChooseTheBestUpToRounding) {
  Random random(2);
  for (const Case& c :
       {Case{3, 7, 10, 150}, Case{9, 33, 20, 200}, Case{5, 16, 130, 200}, Case{32, 128, 64, 140},
        Case{6, 20, 12, 151, 2}, Case{7, 40, 24, 202, 4}, Case{7, 17, 24, 202, 4, false}}) {
    for (const double size : {1.0, 1e15, 1e-15}) {
      Data d = normal_data(c, random);
      for (float& x : d.q) x = static_cast<float>(x * size);
      for (const bool f32 : {true, false}) {
        std::vector<std::int32_t> chosen;
        for (const Isa isa : available_isas()) {
          const auto now = run_whole(c, d, {.isa = isa, .f32 = f32});
          if (chosen.empty()) chosen = now;
          EXPECT_EQ(now, chosen) << isa_name(isa);
        }
        const std::vector<double> keys = reference::dsa_pooled_keys(c.shape(), d.k, d.gate, d.ape);
        for (std::int64_t t = 0; t < c.tokens; ++t) {
          const auto n = [](std::int64_t x) { return static_cast<std::size_t>(x); };
          const std::vector<double> scores = reference::dsa_scores(
              c.shape(), std::span(d.q).subspan(n(t * c.heads * c.dim), n(c.heads * c.dim)),
              std::span(d.w).subspan(n(t * c.heads), n(c.heads)), keys, n((t + 1) / c.kpool));
          const std::span row = std::span(chosen).subspan(n(t * c.width()), n(c.width()));
          std::vector<bool> taken(scores.size());
          std::int64_t count = 0;
          for (const std::int32_t s : row) {
            if (s < 0) continue;
            ++count;
            ASSERT_LE(s, t);
            if (n(s / c.kpool) < scores.size()) taken[n(s / c.kpool)] = true;
          }
          const std::int64_t pools = std::min<std::int64_t>((t + 1) / c.kpool, c.topk / c.kpool);
          const std::int64_t open = c.kpool > 1 && c.tail ? (t + 1) % c.kpool : 0;
          ASSERT_EQ(count, pools * c.kpool + open);
          double worst_taken = HUGE_VAL, best_left = -HUGE_VAL, largest = 0;
          for (std::size_t s = 0; s < scores.size(); ++s) {
            largest = std::max(largest, std::abs(scores[s]));
            if (taken[s]) worst_taken = std::min(worst_taken, scores[s]);
            if (!taken[s]) best_left = std::max(best_left, scores[s]);
          }
          // bf16 keys: rounding 2^-9 of each product, which the sum over heads averages.
          EXPECT_GE(worst_taken, best_left - largest * (f32 ? 2e-6 : 2e-2)) << t;
        }
      }
    }
  }
}

TEST(DsaIndex, EqualScoresGoToTheEarlierPosition) {
  Random random(3);
  for (const Case& c : {Case{4, 16, 8, 200}, Case{4, 16, 8, 200, 4}}) {
    for (const bool zero_scores : {true, false}) {
      Data d = normal_data(c, random);
      for (std::size_t i = 0; i < d.k.size(); ++i) {
        d.k[i] = zero_scores ? 0.0F : d.k[i % static_cast<std::size_t>(c.dim)];  // one key for all
        if (!d.gate.empty()) d.gate[i] = 0;
      }
      const auto chosen = run_whole(c, d, {.isa = detect(), .threads = 2});
      for (std::int64_t t = 0; t < c.tokens; ++t) {
        const std::int64_t by_score = std::min(c.topk, (t + 1) / c.kpool * c.kpool);
        for (std::int64_t i = 0; i < by_score; ++i) {
          ASSERT_EQ(chosen[static_cast<std::size_t>(t * c.width() + i)], i) << t;
        }
      }
    }
  }
}

TEST(DsaIndex, MinusZeroIsZero) {
  // Key 0 scores -1e-60, which rounds to -0; the others meet nothing and score 0.
  const Case c{1, 4, 2, 6};
  Data d{Words(24, 1.0F), Words(24, -1.0F), Words(6, -1e-30F), {}, {}};
  std::fill_n(d.k.begin(), 4, 1e-30F);
  const auto chosen = run_whole(c, d, {.isa = detect()});
  EXPECT_EQ((std::vector<std::int32_t>{chosen.end() - 2, chosen.end()}), (std::vector<std::int32_t>{0, 1}));
  EXPECT_LT(candidate_key(1.0F, 7), candidate_key(0.0F, 3));
  EXPECT_LT(candidate_key(0.0F, 3), candidate_key(0.0F, 4));
  EXPECT_LT(candidate_key(0.0F, 9), candidate_key(-1e-45F, 0));
  EXPECT_LT(candidate_key(-1.0F, 9), candidate_key(-INFINITY, 0));
}

TEST(DsaIndex, TopKKeepsTheBestWhateverTheOrder) {
  Random random(4);
  for (const std::int64_t k : {1, 2, 63, 300, 1000}) {
    std::vector<std::uint64_t> keys;
    for (std::uint32_t i = 0; i < 3000; ++i) {
      keys.push_back(candidate_key(static_cast<float>(random.between(0, 40)), i));
    }
    std::vector<std::uint64_t> sorted = keys;
    std::sort(sorted.begin(), sorted.end());
    sorted.resize(static_cast<std::size_t>(k));
    for (int order = 0; order < 3; ++order) {
      if (order == 1) std::sort(keys.begin(), keys.end());
      if (order == 2) std::reverse(keys.begin(), keys.end());
      std::vector<std::uint64_t> memory(static_cast<std::size_t>(TopK::capacity(k)));
      TopK best(memory.data(), k);
      for (const std::uint64_t key : keys) best.offer(key);
      best.shrink();
      std::vector<std::uint64_t> kept(best.begin(), best.end());
      std::sort(kept.begin(), kept.end());
      EXPECT_EQ(kept, sorted) << k << " " << order;
    }
  }
}

std::vector<std::vector<std::int64_t>> cuts_of(std::int64_t tokens) {
  std::vector<std::vector<std::int64_t>> cuts{std::vector<std::int64_t>(static_cast<std::size_t>(tokens), 1)};
  for (const std::int64_t cut : {1, 2, 3, 15, 16, 17, 63, 64, 65, 100}) cuts.push_back({cut, tokens - cut});
  cuts.push_back({50, 1, 1, 60, 2, tokens - 114});
  cuts.push_back({3, 2, 1, 5, 6, 7, tokens - 24});
  return cuts;
}

/// Pages in order, then the state block.
std::vector<std::uint8_t> cache_of(TestSession& session, std::size_t sequence) {
  std::vector<std::uint8_t> all;
  const auto& s = session.sequence(sequence);
  for (const std::int64_t id : s.pages) {
    all.insert(all.end(), session.page(id), session.page(id) + session.page_bytes());
  }
  all.insert(all.end(), s.state->data(), s.state->data() + session.state_bytes());
  return all;
}

const Case kInvariance[] = {
    {5, 12, 40, 203}, {4, 20, 24, 203, 2}, {9, 16, 40, 203, 4}, {3, 8, 16, 203, 8, false}};

TEST(DsaIndex, ChoicesAndCachesDoNotDependOnCutsOrThreads) {
  Random random(5);
  for (const Case& c : kInvariance) {
    const Data d = normal_data(c, random);
    for (const bool f32 : {true, false}) {
      const TestOp op = make_op(c, d.ape);
      TestSession whole(op, {.isa = detect(), .f32 = f32, .stale = 0xff});
      whole.feed(whole.add(d.inputs()), {c.tokens});
      for (const int threads : {1, 2, 3}) {
        for (const auto& cut : cuts_of(c.tokens)) {
          TestSession session(op, {.isa = detect(), .f32 = f32, .threads = threads, .stale = 0xff});
          session.feed(session.add(d.inputs()), cut);
          EXPECT_EQ(differing_words(session.output(0), whole.output(0)), 0) << cut[0] << " " << threads;
          EXPECT_EQ(cache_of(session, 0), cache_of(whole, 0)) << cut[0] << " " << threads;
        }
      }
    }
  }
}

TEST(DsaIndex, ChoicesDoNotDependOnTheStepsOtherSequences) {
  Random random(6);
  for (const Case& c : kInvariance) {
    const Data d = normal_data(c, random);
    const Data other = normal_data(c, random);
    const TestOp op = make_op(c, d.ape);
    for (const bool f32 : {true, false}) {
      TestSession alone(op, {.isa = detect(), .f32 = f32, .stale = 0xff});
      alone.feed(alone.add(d.inputs()), {c.tokens});
      TestSession batch(op, {.isa = detect(), .f32 = f32, .threads = 2, .stale = 0xff});
      const std::size_t a = batch.add(other.inputs());
      const std::size_t b = batch.add(d.inputs());
      const std::size_t e = batch.add(other.inputs());
      batch.step({{a, 70}});
      batch.step({{b, 3}, {a, 1}, {e, 60}});  // one decides, another takes all
      batch.step({{e, 1}, {b, 90}});
      for (int i = 0; i < 7; ++i) batch.step({{a, 1}, {b, 1}, {e, 1}});
      batch.step({{a, 50}, {b, 103}});
      EXPECT_EQ(differing_words(batch.output(b), alone.output(0)), 0);
      EXPECT_EQ(cache_of(batch, b), cache_of(alone, 0));
    }
  }
}

TEST(DsaIndex, LongContextSharedByThreads) {
  Random random(7);
  // 35 pages, buffers that are halved many times, and pieces of 1, 3 and many rows at once.
  for (const Case& c : {Case{4, 4, 32, 2200}, Case{4, 4, 1024, 2200}, Case{4, 4, 256, 2200, 4}}) {
    const Data d = exact_data(c, random);
    const std::vector<std::int32_t> reference = expected(c, d);
    for (const int threads : {1, 2, 5}) {
      TestSession session(make_op(c, d.ape),
                          {.isa = detect(), .threads = threads, .max_tokens = 2200, .stale = 0xff});
      session.feed(session.add(d.inputs()), {2100, 1, 1, 3, 1, 6, 1, 80, 7});
      EXPECT_EQ(words_int(session.output(0)), reference) << threads;
    }
  }
}

TEST(DsaIndex, ForcedChoicesAreCopiedAndKeysAreStillWritten) {
  Random random(8);
  for (const Case& c : {Case{4, 16, 8, 100}, Case{4, 16, 8, 102, 4}}) {
    const Data d = exact_data(c, random);
    const std::vector<std::int32_t> reference = expected(c, d);
    TestSession session(make_op(c, d.ape), {.isa = detect(), .threads = 2, .stale = 0xff});
    const std::size_t s = session.add(d.inputs());
    std::vector<std::int32_t> forced(static_cast<std::size_t>(90 * c.width()));
    for (std::int32_t& x : forced) x = static_cast<std::int32_t>(random.between(0, 50));
    session.forced = {forced.data()};
    session.feed(s, {90});
    EXPECT_EQ(words_int(session.output(s)), forced);
    session.forced = {nullptr};
    session.feed(s, {c.tokens - 90});
    const auto out = words_int(session.output(s));
    const auto begin = static_cast<std::ptrdiff_t>(forced.size());
    EXPECT_TRUE(std::equal(out.begin() + begin, out.end(), reference.begin() + begin));
  }
}

TEST(DsaIndex, PageOffsetsBeyond32Bits) {
  Random random(9);
  for (const Case& c : {Case{4, 64, 16, 200}, Case{4, 64, 16, 200, 4}}) {
    const Data d = exact_data(c, random);
    // Four pages up to 8 x 10^9 (kpool 4: 2 x 10^9, 8 x 10^9 bytes) elements apart.
    constexpr std::int64_t kSpread = 600000;
    TestSession far(make_op(c, d.ape),
                    {.isa = detect(), .max_context = 256, .max_sequences = 1, .page_spread = kSpread});
    far.feed(far.add(d.inputs()), {c.tokens});
    const auto& pages = far.sequence(0).pages;
    EXPECT_GT(*std::max_element(pages.begin(), pages.end()) * far.page_bytes(), std::int64_t{1} << 32);
    EXPECT_EQ(words_int(far.output(0)), expected(c, d));
  }
}

std::string infer_error(const TestOp& op) {
  const auto types = op.infer();
  return types.ok() ? "" : types.error().message;
}

TEST(DsaIndex, ContractNamesWhatIsWrong) {
  const Case good{2, 8, 16, 1};
  const Case pooled{2, 8, 16, 1, 4};
  const Words ape(32);
  EXPECT_EQ(make_op(good, {}).infer()->front(), (ValueType{DType::kI32, Rows::kTokens, {16}}));
  EXPECT_EQ(make_op(pooled, ape).infer()->front(), (ValueType{DType::kI32, Rows::kTokens, {19}}));
  EXPECT_EQ(make_op(pooled, ape).set("select_tail", false).infer()->front(),
            (ValueType{DType::kI32, Rows::kTokens, {16}}));
  EXPECT_EQ(infer_error(make_op(good, {}).set("kpool", std::int64_t{4})),
            "dsa_index: `gate` is missing although `kpool` is above 1");
  EXPECT_EQ(infer_error(make_op(pooled, ape).set("kpool", std::int64_t{3})),
            "dsa_index: `kpool` is 3, expected a divisor of the 64 tokens of a page");
  EXPECT_EQ(infer_error(make_op(pooled, ape).set("topk", std::int64_t{18})),
            "dsa_index: `topk` is 18, expected a multiple of `kpool` = 4");
  EXPECT_EQ(infer_error(make_op(pooled, ape).set("kpool", std::int64_t{1})),
            "dsa_index: `gate` is given although `kpool` is 1");
  EXPECT_EQ(infer_error(make_op(pooled, ape).set("kpool", std::int64_t{2})),
            "dsa_index: `ape` has 32 channels, expected 16");
  EXPECT_EQ(infer_error(make_op(good, {}).set("topk", std::int64_t{0})),
            "dsa_index: `topk` is 0, expected 1 to 1048576");
  EXPECT_EQ(infer_error(make_op(good, {}).set("dim", std::int64_t{9})),
            "dsa_index: `q` has 16 channels, expected 18");
}

}  // namespace
}  // namespace firstlight
