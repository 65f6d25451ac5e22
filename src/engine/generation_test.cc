#include "engine/generation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace firstlight {
namespace {

constexpr std::int32_t kEnd = 256;     // a special token
constexpr std::int32_t kPadded = 258;  // the model has rows that the tokenizer has no tokens for
constexpr std::int32_t kRows = 260;

/// Every byte is a token, as its own id; 256 and 257 are special.
class ByteTokenizer final : public Tokenizer {
 public:
  Status encode(std::string_view text, bool, std::vector<std::int32_t>& out) const override {
    for (const char c : text) out.push_back(static_cast<unsigned char>(c));
    return {};
  }
  [[nodiscard]] std::string_view token_bytes(std::int32_t id) const override {
    if (id >= 256) return id == kEnd ? "<end>" : "<tool>";
    return {&bytes_[static_cast<std::size_t>(id)], 1};
  }
  [[nodiscard]] std::int32_t vocab_size() const override { return kPadded; }
  [[nodiscard]] bool is_special(std::int32_t id) const override { return id >= 256; }
  [[nodiscard]] bool is_skipped(std::int32_t id) const override { return id >= 256; }
  [[nodiscard]] std::optional<std::int32_t> special_id(std::string_view) const override {
    return std::nullopt;
  }
  [[nodiscard]] std::optional<std::int32_t> eos_id() const override { return kEnd; }

 private:
  std::string bytes_ = [] {
    std::string all;
    for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
    return all;
  }();
};

/// Says a fixed script after the prompt's `prompt_size` tokens, with certainty.
class ScriptedSequence final : public TokenSequence {
 public:
  ScriptedSequence(std::size_t prompt_size, std::vector<std::int32_t> script, std::int64_t capacity)
      : prompt_size_(prompt_size), script_(std::move(script)), capacity_(capacity) {}

  [[nodiscard]] const std::vector<std::int32_t>& tokens() const override { return tokens_; }
  [[nodiscard]] std::int64_t capacity() const override { return capacity_; }
  [[nodiscard]] std::span<const float> logits() const override { return logits_; }
  Status append(std::span<const std::int32_t> tokens, const Session::Progress& progress,
                Origin origin) override {
    EXPECT_EQ(origin == Origin::kGenerated, tokens_.size() >= prompt_size_) << "at " << tokens_.size();
    EXPECT_FALSE(tokens.empty());
    EXPECT_LE(static_cast<std::int64_t>(tokens_.size() + tokens.size()), capacity_);
    for (std::size_t done = 0; done < tokens.size(); ++done) {  // one token a step
      tokens_.push_back(tokens[done]);
      ++appended_;
      if (progress &&
          !progress(static_cast<std::int64_t>(done) + 1, static_cast<std::int64_t>(tokens.size())))
        break;
    }
    logits_.assign(kRows, -100.0F);
    logits_[kPadded] = 100;  // tempting, but no token
    const std::size_t said = tokens_.size() - std::min(tokens_.size(), prompt_size_);
    if (said < script_.size()) logits_[static_cast<std::size_t>(script_[said])] = 50;
    return said == fail_at_ ? Status(Error{"broken"}) : Status();
  }
  std::int64_t keep_common_prefix(std::span<const std::int32_t> wanted) override {
    std::size_t n = 0;
    while (n < tokens_.size() && n + 1 < wanted.size() && tokens_[n] == wanted[n]) ++n;
    tokens_.resize(n);
    return static_cast<std::int64_t>(n);
  }
  void mark() override { marks_.push_back(tokens_.size()); }

  std::size_t prompt_size_;
  std::vector<std::int32_t> script_;
  std::int64_t capacity_;
  std::vector<std::int32_t> tokens_;
  std::vector<float> logits_;
  std::vector<std::size_t> marks_;
  std::size_t appended_ = 0;
  std::size_t fail_at_ = static_cast<std::size_t>(-1);
};

std::vector<std::int32_t> ids(std::string_view text) {
  std::vector<std::int32_t> out;
  EXPECT_TRUE(ByteTokenizer().encode(text, false, out).ok());
  return out;
}

class GenerationTest : public testing::Test {
 protected:
  GenerationTest() { options_.end_tokens = {kEnd}; }

  /// Runs with the prompt "Hi:" and a model that answers `script`.
  Generation run(std::vector<std::int32_t> script, std::int64_t capacity = 100) {
    ScriptedSequence sequence(3, std::move(script), capacity);
    return run(sequence);
  }
  Generation run(ScriptedSequence& sequence) {
    shown_.clear();
    callbacks_.text = [this](std::string_view text) { shown_.emplace_back(text); };
    auto result = generate(sequence, tokenizer_, ids("Hi:"), options_, callbacks_);
    EXPECT_TRUE(result.ok()) << result.error().message;
    if (!result) return {};
    std::string joined;
    for (const std::string& part : shown_) {
      EXPECT_FALSE(part.empty());
      joined += part;
    }
    EXPECT_EQ(joined, result->text);
    EXPECT_EQ(result->stats.generated_tokens, static_cast<std::int64_t>(result->tokens.size()));
    return *result;
  }

  ByteTokenizer tokenizer_;
  GenerationOptions options_;
  GenerationCallbacks callbacks_;
  std::vector<std::string> shown_;
};

std::vector<std::int32_t> with_end(std::vector<std::int32_t> script) {
  script.push_back(kEnd);
  return script;
}

TEST_F(GenerationTest, EndsAtTheEndToken) {
  const Generation g = run(with_end(ids("yes")));
  EXPECT_EQ(g.finish, FinishReason::kEndToken);
  EXPECT_EQ(g.text, "yes");
  EXPECT_EQ(g.tokens, with_end(ids("yes")));
  EXPECT_EQ(g.stats.prompt_tokens, 3);
  EXPECT_EQ(g.stats.cached_tokens, 0);
}

TEST_F(GenerationTest, AnIgnoredEndTokenHasNoText) {
  options_.ignore_end_tokens = true;
  options_.max_tokens = 4;
  auto script = with_end(ids("ab"));
  script.push_back('c');
  const Generation g = run(script);
  EXPECT_EQ(g.finish, FinishReason::kLength);
  EXPECT_EQ(g.text, "abc");
}

TEST_F(GenerationTest, CountsTokensExactly) {
  for (std::int64_t n = 1; n <= 5; ++n) {
    options_.max_tokens = n;
    ScriptedSequence sequence(3, ids("abcdefgh"), 100);
    const Generation g = run(sequence);
    EXPECT_EQ(g.finish, FinishReason::kLength);
    EXPECT_EQ(g.text, std::string("abcdefgh").substr(0, static_cast<std::size_t>(n)));
    EXPECT_EQ(sequence.tokens().size(), 3 + static_cast<std::size_t>(n) - 1);  // no step for the last one
  }
}

TEST_F(GenerationTest, AFullContextIsSaid) {
  const Generation g = run(ids("abcdefgh"), 5);
  EXPECT_EQ(g.finish, FinishReason::kContextFull);
  EXPECT_EQ(g.text, "abc");  // two with room in the cache, and the one after them
  EXPECT_EQ(run(ids("abcdefgh"), 3).text, "a");
  // Where both limits meet, the asked-for length is reached.
  options_.max_tokens = 3;
  EXPECT_EQ(run(ids("abcdefgh"), 5).finish, FinishReason::kLength);
}

TEST_F(GenerationTest, APromptThatDoesNotFitIsRefused) {
  ScriptedSequence sequence(3, ids("a"), 2);
  const auto result = generate(sequence, tokenizer_, ids("Hi:"), options_);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().message, "the prompt has 3 tokens, but the context holds only 2");
  EXPECT_FALSE(generate(sequence, tokenizer_, {}, options_).ok());
  EXPECT_EQ(sequence.appended_, 0U);
}

TEST_F(GenerationTest, StopStringsNeverShow) {
  options_.stop = {"END", "\n\n"};
  Generation g = run(ids("one ENtwo ENDthree"));
  EXPECT_EQ(g.finish, FinishReason::kStopString);
  EXPECT_EQ(g.text, "one ENtwo ");
  g = run(ids("a\n\nb"));
  EXPECT_EQ(g.text, "a");
  // What only looked like a stop string is shown in the end.
  g = run(with_end(ids("one EN")));
  EXPECT_EQ(g.finish, FinishReason::kEndToken);
  EXPECT_EQ(g.text, "one EN");
}

TEST_F(GenerationTest, OnlyWholeCharactersAreShown) {
  options_.max_tokens = 5;
  run(ids("a€é"));  // 1 + 3 + 2 bytes
  EXPECT_EQ(shown_, (std::vector<std::string>{"a", "€", "\uFFFD"}));
}

TEST_F(GenerationTest, CancellingKeepsWhatIsThere) {
  int asked = 0;
  callbacks_.cancelled = [&] { return ++asked > 5; };  // three steps of the prompt, then before each token
  ScriptedSequence sequence(3, ids("abcdefgh"), 100);
  Generation g = run(sequence);
  EXPECT_EQ(g.finish, FinishReason::kCancelled);
  EXPECT_EQ(g.text, "ab");

  asked = 4;  // now in the middle of the prompt
  ScriptedSequence other(3, ids("abcdefgh"), 100);
  g = run(other);
  EXPECT_EQ(g.finish, FinishReason::kCancelled);
  EXPECT_EQ(g.text, "");
  EXPECT_EQ(other.tokens(), ids("Hi"));
}

TEST_F(GenerationTest, TheCacheIsUsedAndMarked) {
  options_.stable_tokens = 2;
  ScriptedSequence sequence(3, with_end(ids("yes")), 100);
  std::vector<std::int64_t> progress;
  callbacks_.prefill = [&](std::int64_t done, std::int64_t total) {
    EXPECT_EQ(total, 3);
    progress.push_back(done);
  };
  run(sequence);
  EXPECT_EQ(sequence.marks_, std::vector<std::size_t>{2});
  EXPECT_EQ(progress, (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(sequence.tokens(), ids("Hi:yes"));

  sequence.prompt_size_ = 8;
  sequence.appended_ = 0;
  const auto result = generate(sequence, tokenizer_, ids("Hi:yes..."), options_);
  EXPECT_EQ(result->stats.cached_tokens, 6);
  EXPECT_EQ(result->stats.prompt_tokens, 9);
  EXPECT_EQ(sequence.marks_.size(), 1U);  // position 2 is behind us
}

TEST_F(GenerationTest, FailuresOfTheModelComeThrough) {
  ScriptedSequence sequence(3, ids("abc"), 100);
  sequence.fail_at_ = 2;
  const auto result = generate(sequence, tokenizer_, ids("Hi:"), options_);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().message, "broken");
  options_.sampling.top_p = 2;
  EXPECT_FALSE(generate(sequence, tokenizer_, ids("Hi:"), options_).ok());
  options_.sampling.top_p = 1;
  options_.stop = {""};
  EXPECT_FALSE(generate(sequence, tokenizer_, ids("Hi:"), options_).ok());
}

TEST_F(GenerationTest, GreedyAndSampledRunsAreRepeatable) {
  options_.max_tokens = 6;
  options_.sampling = {.temperature = 40, .top_k = 30, .seed = 11};  // flat enough to be surprised
  const auto first = run(ids("abcdefgh")).tokens;
  EXPECT_EQ(run(ids("abcdefgh")).tokens, first);
  options_.sampling.seed = 12;
  EXPECT_NE(run(ids("abcdefgh")).tokens, first);
  options_.sampling = {.temperature = 0};
  EXPECT_EQ(run(ids("abcdefgh")).text, "abcdef");
}

TEST(EndTokens, AreTheUnion) {
  GenerationDefaults defaults;
  defaults.eos_token_ids = {7, 256, 3};
  EXPECT_EQ(end_token_ids(std::vector<std::int32_t>{9, 7}, defaults, ByteTokenizer()),
            (std::vector<std::int32_t>{3, 7, 9, 256}));
  EXPECT_EQ(end_token_ids({}, {}, ByteTokenizer()), std::vector<std::int32_t>{256});
}

}  // namespace
}  // namespace firstlight
