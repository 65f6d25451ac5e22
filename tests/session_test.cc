// Sessions: what is in the cache, going back, and that running a step allocates nothing.
#include "engine/session.h"

#include "allocation_count.h"
#include "golden_support.h"

namespace firstlight::testing {
namespace {

class SessionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto folder = bundled_goldens() / "kimi_k31_b";
    auto traced = trace_model(folder, models_folder());
    ASSERT_TRUE(traced.ok()) << traced.error().message;
    checkpoint_ = std::make_unique<Checkpoint>(std::move(*Checkpoint::open(folder.string())));
    LoadOptions load;
    load.threads = 2;
    load.max_context = traced->max_context;
    load.context = 300;
    load.step_tokens = 48;
    load.sequences = 2;
    auto model = Model::load(std::move(traced->graph), *checkpoint_, std::move(load));
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = std::move(*model);
    for (std::int32_t i = 0; i < 200; ++i) ids_.push_back((i * 37 + 11) % 240);
  }
  std::unique_ptr<Session> fresh() { return std::move(*Session::create(*model_)); }
  [[nodiscard]] std::span<const std::int32_t> ids(std::size_t begin, std::size_t end) const {
    return std::span(ids_).subspan(begin, end - begin);
  }
  static std::vector<float> logits_of(const Session& s) { return {s.logits().begin(), s.logits().end()}; }

  std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<Model> model_;
  std::vector<std::int32_t> ids_;
};

TEST_F(SessionTest, AppendingInPiecesEqualsAtOnce) {
  const auto a = fresh();
  ASSERT_TRUE(a->append(ids(0, 200)).ok());
  const auto b = fresh();
  for (std::size_t i = 0; i < 200; i += 13)
    ASSERT_TRUE(b->append(ids(i, std::min<std::size_t>(i + 13, 200))).ok());
  EXPECT_EQ(logits_of(*a), logits_of(*b));
  EXPECT_EQ(a->tokens(), b->tokens());
}

TEST_F(SessionTest, GoingBackToAMarkEqualsAFreshRun) {
  const auto plain = fresh();
  std::vector<std::int32_t> other(ids_.begin(), ids_.begin() + 150);
  other[130] = 5;
  ASSERT_TRUE(plain->append(other).ok());

  const auto s = fresh();
  ASSERT_TRUE(s->append(ids(0, 101)).ok());
  s->mark();
  ASSERT_TRUE(s->append(ids(101, 140)).ok());
  EXPECT_EQ(s->keep_common_prefix(other), 101);
  EXPECT_EQ(s->tokens().size(), 101U);
  ASSERT_TRUE(s->append(std::span<const std::int32_t>(other).subspan(101)).ok());
  EXPECT_EQ(logits_of(*s), logits_of(*plain));
  // What is wanted next continues what is there: nothing is taken back.
  std::vector<std::int32_t> longer = other;
  longer.push_back(3);
  EXPECT_EQ(s->keep_common_prefix(longer), 150);
  // Nothing in common: from the start.
  EXPECT_EQ(s->keep_common_prefix(ids(1, 60)), 0);
  ASSERT_TRUE(s->append(other).ok());
  EXPECT_EQ(logits_of(*s), logits_of(*plain));
}

TEST_F(SessionTest, ErrorsLeaveTheSessionAsItWas) {
  const auto s = fresh();
  ASSERT_TRUE(s->append(ids(0, 100)).ok());
  const std::vector<float> before = logits_of(*s);
  const std::int32_t bad[] = {1, 999999};
  EXPECT_FALSE(s->append(bad).ok());
  std::vector<std::int32_t> many(250, 1);
  const Status full = s->append(many);
  ASSERT_FALSE(full.ok());
  EXPECT_NE(full.error().message.find("context is full"), std::string::npos);
  EXPECT_EQ(s->tokens().size(), 100U);
  EXPECT_EQ(logits_of(*s), before);
  const auto second = fresh();
  EXPECT_FALSE(Session::create(*model_).ok());  // two sequences at most
}

TEST_F(SessionTest, AStoppedAppendKeepsWhatWasDone) {
  const auto s = fresh();
  ASSERT_TRUE(s->append(ids(0, 200), [](std::int64_t done, std::int64_t) { return done < 96; }).ok());
  EXPECT_EQ(s->tokens().size(), 96U);
  ASSERT_TRUE(s->append(ids(96, 200)).ok());
  const auto plain = fresh();
  ASSERT_TRUE(plain->append(ids(0, 200)).ok());
  EXPECT_EQ(logits_of(*s), logits_of(*plain));
}

TEST_F(SessionTest, AStepAllocatesNothing) {
  const auto s = fresh();
  ASSERT_TRUE(s->append(ids(0, 48)).ok());
  SequenceCache cache;
  ASSERT_TRUE(model_->cache().open(cache).ok());
  ASSERT_TRUE(model_->cache().grow(cache, 128).ok());
  StepRunner runner(*model_);
  std::int64_t position = 0;
  const auto step = [&](std::int64_t rows, Sampled sampled) {
    const Piece piece{
        .cache = &cache,
        .position = position,
        .tokens = ids(static_cast<std::size_t>(position), static_cast<std::size_t>(position + rows))};
    runner.run({&piece, 1}, sampled);
    position += rows;
  };
  step(48, Sampled::kLast);
  const std::int64_t before = allocation_count();
  step(30, Sampled::kNone);
  for (int i = 0; i < 20; ++i) step(1, Sampled::kLast);
  EXPECT_EQ(allocation_count(), before);
  model_->cache().close(cache);
}

TEST_F(SessionTest, CachesHoldTheSameBytesHoweverThePromptIsCut) {
  // Fresh pages and states are zero, so whole pages can be compared.
  StepRunner runner(*model_);
  const auto fill = [&](SequenceCache& cache, std::int64_t piece) {
    ASSERT_TRUE(model_->cache().open(cache).ok());
    ASSERT_TRUE(model_->cache().grow(cache, 140).ok());
    for (std::int64_t at = 0; at < 140; at += piece) {
      const std::int64_t end = std::min<std::int64_t>(at + piece, 140);
      const Piece part{.cache = &cache,
                       .position = at,
                       .tokens = ids(static_cast<std::size_t>(at), static_cast<std::size_t>(end))};
      runner.run({&part, 1}, Sampled::kNone);
    }
  };
  SequenceCache a;
  SequenceCache b;
  fill(a, 48);
  fill(b, 1);
  const CachePool& pool = model_->cache();
  const std::int64_t page = pool.layout().page_bytes;
  for (std::size_t p = 0; p < a.pages.size(); ++p) {
    EXPECT_EQ(std::memcmp(pool.page_base() + a.pages[p] * page, pool.page_base() + b.pages[p] * page,
                          static_cast<std::size_t>(page)),
              0)
        << "page " << p;
  }
  EXPECT_EQ(std::memcmp(pool.state(a), pool.state(b), static_cast<std::size_t>(pool.layout().state_bytes)),
            0);
  model_->cache().close(a);
  model_->cache().close(b);
}

TEST_F(SessionTest, SamplingNeverSeesAnImage) {
  // kimi_k31_b names id 253 as the placeholder of images.
  const std::int32_t image[] = {253};
  EXPECT_EQ(trace_model(bundled_goldens() / "kimi_k31_b", models_folder())->image_token_id, -1);  // text only
  auto again = trace_model(bundled_goldens() / "kimi_k31_b", models_folder());
  LoadOptions load;
  load.max_context = again->max_context;
  load.context = 64;
  load.image_token_id = 253;
  const auto model = Model::load(std::move(again->graph), *checkpoint_, std::move(load));
  ASSERT_TRUE(model.ok());
  const auto s = std::move(*Session::create(**model));
  EXPECT_FALSE(s->append(image).ok());
  ASSERT_TRUE(s->append(ids(0, 5)).ok());
  EXPECT_EQ(s->logits()[253], -std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace firstlight::testing
