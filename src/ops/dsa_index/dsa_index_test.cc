#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <iterator>

#include "ops/dsa_index/kernels.h"
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

// ---- how keys are searched --------------------------------------------------------------------------------

/// What may go wrong with bounds: kinds of keys, queries and weights.
enum class Kind { kNormal, kClustered, kTied, kZero, kPositive, kHuge, kTiny, kMixedSizes, kNotFinite };
constexpr Kind kKinds[] = {Kind::kNormal, Kind::kClustered,  Kind::kTied,
                           Kind::kZero,   Kind::kPositive,   Kind::kHuge,
                           Kind::kTiny,   Kind::kMixedSizes, Kind::kNotFinite};

Data data_of(Kind kind, const Case& c, Random& random) {
  Data d = kind == Kind::kTied ? exact_data(c, random) : normal_data(c, random);
  const Words topics = random.normals(5 * c.dim);
  const auto each = [&](Words& x, std::int64_t width, const auto& change) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = change(x[i], static_cast<std::int64_t>(i) / width, static_cast<std::int64_t>(i) % width);
    }
  };
  const auto scaled = [&](Words& x, double size) {
    for (float& v : x) v = static_cast<float>(v * size);
  };
  switch (kind) {
    case Kind::kNormal:
    case Kind::kTied:
      break;
    case Kind::kClustered:
      each(d.k, c.dim, [&](float x, std::int64_t t, std::int64_t channel) {
        return topics[static_cast<std::size_t>(t / 70 % 5 * c.dim + channel)] + 0.1F * x;
      });
      break;
    case Kind::kZero:  // all scores 0, but for some rows
      each(d.w, c.heads, [](float x, std::int64_t t, std::int64_t) { return t % 3 == 0 ? x : 0.0F; });
      each(d.k, c.dim, [](float x, std::int64_t t, std::int64_t) { return t % 2 == 0 ? x : 0.0F; });
      break;
    case Kind::kPositive:
      each(d.w, c.heads, [](float x, std::int64_t, std::int64_t) { return std::abs(x); });
      break;
    case Kind::kHuge:
      scaled(d.q, 1e12);
      scaled(d.k, 1e9);
      scaled(d.w, 1e14);
      break;
    case Kind::kTiny:
      scaled(d.q, 1e-16);
      scaled(d.k, 1e-13);
      scaled(d.w, 1e-12);
      break;
    case Kind::kMixedSizes: {
      constexpr float kSizes[] = {1, 1e-20F, 1e20F, 1e-38F, 30, 1e-6F, 1e-3F};
      each(d.k, c.dim, [&](float x, std::int64_t t, std::int64_t) { return x * kSizes[t % 7]; });
      each(d.q, c.dim, [&](float x, std::int64_t th, std::int64_t) { return x * kSizes[th % 5]; });
      each(d.w, c.heads, [&](float x, std::int64_t t, std::int64_t) { return t % 11 == 0 ? x * 1e-30F : x; });
      break;
    }
    case Kind::kNotFinite:
      each(d.k, c.dim, [](float x, std::int64_t t, std::int64_t channel) {
        return t % 17 != 3 || channel != 1 ? x : t % 2 == 0 ? NAN : t % 4 == 1 ? INFINITY : -INFINITY;
      });
      each(d.q, c.dim, [](float x, std::int64_t th, std::int64_t) { return th % 29 == 7 ? INFINITY : x; });
      each(d.w, c.heads, [](float x, std::int64_t t, std::int64_t) { return t % 31 == 5 ? -INFINITY : x; });
      break;
  }
  return d;
}

// Small choices of long contexts, so that bounds decide on every instruction set; one that chooses half.
const Case kSearched[] = {{4, 16, 8, 330},     {16, 64, 24, 200},        {19, 36, 5, 140},
                          {33, 12, 12, 140},   {2, 7, 3, 300},           {8, 16, 100, 200},
                          {8, 12, 12, 400, 4}, {16, 32, 24, 260, 2},     {3, 16, 64, 700, 32},
                          {4, 16, 1, 200},     {5, 12, 8, 300, 4, false}};

TEST(DsaIndex, CertifiedChoosesWhatScoringEveryKeyChooses) {
  Random random(10);
  for (const Case& c : kSearched) {
    for (const Kind kind : kKinds) {
      const Data d = data_of(kind, c, random);
      for (const bool f32 : {true, false}) {
        TestSettings settings{.f32 = f32, .run = {.key_search = KeySearch::kFull}};
        const auto full = run_whole(c, d, settings);
        settings.run.key_search = KeySearch::kCertified;
        EXPECT_EQ(run_whole(c, d, settings), full)
            << static_cast<int>(kind) << " heads " << c.heads << " dim " << c.dim << " topk " << c.topk
            << " kpool " << c.kpool << " f32 " << f32;
      }
    }
  }
}

TEST(DsaIndex, SearchesDoNotDependOnCutsThreadsOrInstructionSet) {
  Random random(11);
  for (const Case& c : {Case{5, 12, 8, 460}, Case{4, 16, 16, 460, 4}}) {
    for (const Kind kind : {Kind::kNormal, Kind::kTied, Kind::kNotFinite}) {
      const Data d = data_of(kind, c, random);
      for (const KeySearch search : {KeySearch::kCertified, KeySearch::kTwoStage}) {
        const RunSettings run{.key_search = search, .candidates = 64, .min_context = 300};
        const auto whole = run_whole(c, d, {.isa = detect(), .f32 = false, .run = run});
        for (const Isa isa : available_isas()) {
          for (const int threads : {1, 2, 3}) {
            for (const std::vector<std::int64_t>& cut :
                 {std::vector<std::int64_t>{460}, {320, 1, 1, 3, 61, 1, 2, 71}, {200, 201, 30, 29}}) {
              TestSession session(make_op(c, d.ape),
                                  {.isa = isa, .f32 = false, .threads = threads, .stale = 0xff, .run = run});
              session.feed(session.add(d.inputs()), cut);
              EXPECT_EQ(words_int(session.output(0)), whole)
                  << isa_name(isa) << " " << threads << " " << cut[0] << " " << static_cast<int>(kind);
            }
          }
        }
      }
    }
  }
}

TEST(DsaIndex, BuffersThatOverflowChooseTheSame) {
  // More keys than a buffer holds (4 x 256), ties that no bound can separate, the best ones first or last.
  Random random(12);
  const Case c{2, 8, 40, 1500};
  for (int order = 0; order < 3; ++order) {
    Data d = normal_data(c, random);
    for (std::size_t i = 0; i < d.k.size(); ++i) {
      const std::size_t token = i / 8;
      const auto t = static_cast<float>(token);
      d.k[i] = order == 0 ? 0.0F : order == 1 ? 1 + t / 1500 : 2 - t / 1500;
    }
    TestSettings settings{.f32 = true, .max_tokens = 1500, .run = {.key_search = KeySearch::kFull}};
    const auto run = [&] {
      TestSession session(make_op(c, {}), settings);
      session.feed(session.add(d.inputs()), {1400, 90, 1, 1, 3, 5});
      return words_int(session.output(0));
    };
    const auto full = run();
    settings.run.key_search = KeySearch::kCertified;
    for (const int threads : {1, 2, 3}) {
      settings.threads = threads;
      EXPECT_EQ(run(), full) << order << " " << threads;
    }
  }
}

TEST(DsaIndex, TwoStagesWithAllPagesChooseWhatScoringEveryKeyChooses) {
  Random random(13);
  for (const Case& c : {Case{4, 16, 8, 700}, Case{8, 20, 12, 700, 4}}) {
    const Data d = data_of(Kind::kClustered, c, random);
    const auto full = run_whole(c, d, {.run = {.key_search = KeySearch::kFull}});
    for (const auto& [candidates, min_context] : {std::pair{1024, 0}, {64, 700}}) {
      EXPECT_EQ(run_whole(c, d,
                          {.run = {.key_search = KeySearch::kTwoStage,
                                   .candidates = candidates,
                                   .min_context = min_context}}),
                full);
    }
  }
}

TEST(DsaIndex, TwoStagesSearchThePagesWithTheBestMeans) {
  // Page p holds keys of size p % 10 in the query's direction: with two candidates pages 9 and 19, the first
  // and the newest two are searched, and nothing else.
  const Case c{1, 8, 100, 64 * 25 + 10};
  Data d{Words(static_cast<std::size_t>(c.tokens * 8), 1.0F),
         Words(static_cast<std::size_t>(c.tokens * 8)),
         Words(static_cast<std::size_t>(c.tokens), 1.0F),
         {},
         {}};
  for (std::size_t i = 0; i < d.k.size(); ++i) d.k[i] = static_cast<float>(i / 8 / 64 % 10);
  const RunSettings run{.key_search = KeySearch::kTwoStage, .candidates = 100, .min_context = 64 * 25};
  const auto two = run_whole(c, d, {.run = run});
  const auto full = run_whole(c, d, {.run = {.key_search = KeySearch::kFull}});
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    const auto row = two.begin() + t * 100;
    if (t < 64 * 25) {
      ASSERT_TRUE(std::equal(row, row + 100, full.begin() + t * 100)) << t;
      continue;
    }
    for (int i = 0; i < 100; ++i) ASSERT_EQ(row[i], i < 64 ? 9 * 64 + i : 19 * 64 + i - 64) << t;
  }
}

TEST(DsaIndex, TwoStagesFindMostOfTheBestKeysOfClusteredText) {
  Random random(14);
  const Case c{4, 16, 64, 64 * 40};
  Data d = normal_data(c, random);
  const Words topics = random.normals(12 * c.dim);
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    const std::int64_t topic = t / 150 * 7 % 12;
    const std::int64_t aim = random.between(0, 11);
    for (std::int64_t i = 0; i < c.dim; ++i) {
      float& k = d.k[static_cast<std::size_t>(t * c.dim + i)];
      k = topics[static_cast<std::size_t>(topic * c.dim + i)] + 0.35F * k;
      for (std::int64_t h = 0; h < c.heads; ++h) {
        d.q[static_cast<std::size_t>((t * c.heads + h) * c.dim + i)] +=
            topics[static_cast<std::size_t>(aim * c.dim + i)];
      }
    }
  }
  for (float& w : d.w) w = std::abs(w);
  const auto run = [&](KeySearch search) {
    TestSession session(make_op(c, {}), {.max_tokens = c.tokens,
                                         .run = {.key_search = search, .candidates = 640, .min_context = 0}});
    session.feed(session.add(d.inputs()), {c.tokens});
    return words_int(session.output(0));
  };
  const auto full = run(KeySearch::kFull);
  const auto two = run(KeySearch::kTwoStage);
  std::int64_t found = 0;
  constexpr std::int64_t kLast = 300;
  for (std::int64_t t = c.tokens - kLast; t < c.tokens; ++t) {
    std::vector<std::int32_t> both;
    std::set_intersection(full.begin() + t * c.topk, full.begin() + (t + 1) * c.topk,
                          two.begin() + t * c.topk, two.begin() + (t + 1) * c.topk, std::back_inserter(both));
    found += static_cast<std::int64_t>(both.size());
  }
  // A quarter of the keys is searched.
  EXPECT_GT(static_cast<double>(found) / static_cast<double>(kLast * c.topk), 0.9);
  EXPECT_NE(full, two);
}

TEST(DsaIndex, TwoStageChoicesDoNotDependOnNeighbours) {
  Random random(15);
  const Case c{4, 16, 24, 600};
  const Data d = data_of(Kind::kClustered, c, random);
  const Data other = data_of(Kind::kNormal, c, random);
  const TestOp op = make_op(c, {});
  TestSettings settings{.f32 = false,
                        .threads = 2,
                        .max_tokens = 1200,
                        .stale = 0xff,
                        .run = {.key_search = KeySearch::kTwoStage, .candidates = 128, .min_context = 200}};
  TestSession alone(op, settings);
  alone.feed(alone.add(d.inputs()), {c.tokens});
  TestSession batch(op, settings);
  const std::size_t a = batch.add(other.inputs());
  const std::size_t b = batch.add(d.inputs());
  batch.step({{a, 400}, {b, 37}});
  batch.step({{a, 1}, {b, 500}});
  for (int i = 0; i < 20; ++i) batch.step({{a, 1}, {b, 1}});
  batch.step({{a, 100}, {b, 43}});
  EXPECT_EQ(words_int(batch.output(b)), words_int(alone.output(0)));
}

TEST(DsaIndex, BoundsHoldTheExactScore) {
  Random random(16);
  const DsaIndexKernels& kernels = FL_PICK(testing::chosen_isa(), kDsaIndexKernels);
  for (const bool f32 : {true, false}) {
    const IndexOperands& operands = f32 ? kernels.f32 : kernels.bf16;
    for (const auto& [heads, dim] :
         {std::pair<std::int64_t, std::int64_t>{1, 4}, {16, 128}, {3, 7}, {33, 64}, {64, 20}}) {
      for (const Kind kind : kKinds) {
        const Case c{heads, dim, 1, 64};
        Data d = data_of(kind, c, random);
        const std::int64_t wide = (heads + 15) / 16 * 16;
        const std::int64_t bytes = dsa_index_key_bytes(dim);
        const auto n = [](std::int64_t x) { return static_cast<std::size_t>(x); };
        std::vector<float> cells(n((dim + 1) * wide)), weights(n(wide)), byte_weights(n(wide)),
            scaled(n(heads * dim)), residuals(n(heads * dim)), products(n(2 * wide * wide)), half(n(dim)),
            own_columns(n((dim + 1) * wide));
        std::vector<std::int8_t> head_bytes(n(wide * bytes)), linear(n(bytes));
        std::vector<std::int32_t> start(n(wide));
        std::vector<std::uint8_t> tile(n(64 * bytes));
        std::array<float, 64> scale, residual, norm;
        const std::int64_t key_bytes = dsa_index_key_elements(dim) * (f32 ? 4 : 2);
        std::vector<std::uint8_t> stored(n(64 * key_bytes));
        std::array<const std::uint8_t*, 64> keys;
        std::vector<float> values(n(dim));
        for (std::int64_t t = 0; t < 64; ++t) {
          std::uint8_t* key = stored.data() + t * key_bytes;
          for (std::int64_t i = 0; i < dim; ++i) {
            const float x = d.k[n(t * dim + i)];
            const std::uint16_t narrow = f32_to_bf16(x);
            std::memcpy(key + i * (f32 ? 4 : 2), f32 ? static_cast<const void*>(&x) : &narrow, f32 ? 4 : 2);
          }
          keys[n(t)] = key;
          operands.values(key, dim, values.data());
          const KeyScale s = kernels.quantise_key(values.data(), dim, tile.data() + t * 4, 64 * 4);
          scale[n(t)] = s.scale;
          residual[n(t)] = s.residual;
          norm[n(t)] = s.norm;
        }
        int certified = 0;
        for (std::int64_t t = 0; t < 64; ++t) {
          IndexQuery query{cells.data(),
                           weights.data(),
                           head_bytes.data(),
                           start.data(),
                           byte_weights.data(),
                           linear.data(),
                           0,
                           0,
                           {},
                           false};
          operands.prepare_query(
              d.q.data() + t * heads * dim, d.w.data() + t * heads, 0.1F, heads, dim,
              {scaled.data(), residuals.data(), own_columns.data(), products.data(), half.data()}, query);
          std::array<std::int32_t, 64> lower, upper;
          std::array<std::int32_t, 64 + kScoreSlack> exact;
          operands.score(query, heads, dim, keys.data(), 64, 64, exact.data());
          if (!query.certified) continue;
          ++certified;
          kernels.scan(query, heads, dim, {tile.data(), scale.data(), residual.data(), norm.data()}, 64, {},
                       lower.data(), upper.data());
          for (std::size_t i = 0; i < 64; ++i) {
            EXPECT_LE(lower[i], exact[i]) << static_cast<int>(kind) << " " << heads << " " << dim << " " << t;
            EXPECT_GE(upper[i], exact[i]) << static_cast<int>(kind) << " " << heads << " " << dim << " " << t;
          }
        }
        if (kind == Kind::kNormal || kind == Kind::kPositive) {
          EXPECT_EQ(certified, 64);
        }
      }
    }
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

TEST(DsaIndex, CostCountsTheKeysThatTheSearchReads) {
  const NodeSpec node = make_op({2, 8, 16, 1}, {}).spec();
  const StepShape step{.tokens = 2, .sampled = 1, .context = 100};
  StepShape in_f32 = step;
  in_f32.f32 = true;
  // Bytes with three bounds of all keys; of the step's own the exact keys too.
  EXPECT_EQ(dsa_index_contract().cost(node, step).cache_bytes, (8 + 12) * 102 + 2 * 8 * 2);
  EXPECT_EQ(dsa_index_contract().cost(node, in_f32).cache_bytes, (8 + 12) * 102 + 4 * 8 * 2);
  EXPECT_EQ(dsa_full_cost(node, step).cache_bytes, 2 * 8 * 102);
  EXPECT_EQ(dsa_full_cost(node, in_f32).cache_bytes, 4 * 8 * 102);
  EXPECT_EQ(dsa_full_cost(node, step).flops, dsa_index_contract().cost(node, step).flops);
}

TEST(DsaIndex, TwoStagesCostTheMeansAndWhatIsSearched) {
  const NodeSpec node = make_op({2, 8, 16, 1}, {}).spec();
  const auto cost = [&](std::int64_t context) {
    return dsa_index_contract().cost(node, {.tokens = 1, .sampled = 1, .context = context});
  };
  const Cost far = dsa_two_stage_cost(node, {.tokens = 1, .sampled = 1, .context = 64000}, 100);
  // 128 candidates and three pages, and the means of 1000 pages.
  EXPECT_EQ(far.flops, cost(128 + 192).flops + 2 * 2 * (8 + 1) * 1000);
  EXPECT_EQ(far.cache_bytes, cost(128 + 192).cache_bytes + (8 + 8) * 1000);
  EXPECT_LT(far.cache_bytes, cost(64000).cache_bytes / 10);
}

}  // namespace
}  // namespace firstlight
