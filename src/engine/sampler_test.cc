#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/random.h"

namespace firstlight {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

std::int32_t sample(const SamplingOptions& options, const std::vector<float>& logits,
                    const std::vector<std::int32_t>& history = {}, std::size_t prompt_tokens = 0) {
  const auto id = Sampler(options).sample(logits, history, prompt_tokens);
  EXPECT_TRUE(id.ok()) << id.error().message;
  return id.ok() ? *id : -1;
}

/// How often each id is drawn in `draws` generated tokens.
std::vector<int> frequencies(const SamplingOptions& options, const std::vector<float>& logits, int draws) {
  Sampler sampler(options);
  std::vector<int> counts(logits.size());
  std::vector<std::int32_t> history;
  for (int i = 0; i < draws; ++i) {
    const auto id = sampler.sample(logits, history, 0);
    EXPECT_TRUE(id.ok());
    ++counts[static_cast<std::size_t>(*id)];
    history.push_back(*id);
  }
  return counts;
}

/// Pearson's statistic of observed counts against probabilities; zero-probability ids must not occur.
double chi_square(const std::vector<int>& counts, const std::vector<double>& probabilities) {
  const int draws = std::accumulate(counts.begin(), counts.end(), 0);
  double sum = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double expected = probabilities[i] * draws;
    if (expected == 0) {
      EXPECT_EQ(counts[i], 0) << "id " << i;
      continue;
    }
    sum += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  return sum;
}

TEST(Random, StreamsAreReproducibleAndUniform) {
  Random a(7);
  for (std::uint64_t i = 0; i < 100; ++i) EXPECT_EQ(a(), random_bits(7, i));
  EXPECT_NE(random_bits(7, 0), random_bits(8, 0));
  EXPECT_NE(random_bits(7, 1), random_bits(8, 0));
  std::vector<int> bins(16);
  for (int i = 0; i < 160000; ++i) ++bins[static_cast<std::size_t>(a.uniform() * 16)];
  EXPECT_LT(chi_square(bins, std::vector<double>(16, 1.0 / 16)), 37.7);  // 15 degrees: 0.1 % above
}

TEST(Sampler, ZeroTemperatureTakesTheLowestOfTheBest) {
  const SamplingOptions greedy{.temperature = 0};
  EXPECT_EQ(sample(greedy, {0.0F, 3.0F, -1.0F, 3.0F}), 1);
  EXPECT_EQ(sample(greedy, {-kInfinity, -5.0F}), 1);
  EXPECT_EQ(sample(greedy, {2.0F}), 0);
}

TEST(Sampler, NoTokenIsAnError) {
  for (const float temperature : {0.0F, 1.0F}) {
    Sampler sampler(SamplingOptions{.temperature = temperature});
    const std::vector<std::vector<float>> bad = {
        {0.0F, std::nanf(""), 1.0F}, {0.0F, kInfinity}, {-kInfinity, -kInfinity}, {}};
    for (const auto& logits : bad) EXPECT_FALSE(sampler.sample(logits, {}, 0).ok());
    EXPECT_NE(sampler.sample(bad[0], {}, 0).error().message.find("model produced NaN"), std::string::npos);
  }
}

TEST(Sampler, DrawsTheModelsDistribution) {
  const std::vector<double> p = {0.5, 0.25, 0.125, 0.0625, 0.0625};
  EXPECT_LT(chi_square(frequencies({.seed = 1}, logits_of(p), 50000), p), 18.5);  // 4 degrees: 0.1 %
}

TEST(Sampler, TemperatureSharpensAndFlattens) {
  const std::vector<double> p = {0.6, 0.3, 0.1};
  for (const double t : {0.5, 2.0}) {
    std::vector<double> q;
    for (const double x : p) q.push_back(std::pow(x, 1 / t));
    const double sum = std::accumulate(q.begin(), q.end(), 0.0);
    for (double& x : q) x /= sum;
    const SamplingOptions options{.temperature = static_cast<float>(t), .seed = 2};
    EXPECT_LT(chi_square(frequencies(options, logits_of(p), 50000), q), 13.9);  // 2 degrees: 0.1 %
  }
}

TEST(Sampler, TopKKeepsTheKMostLikelyAndTiesGoToLowIds) {
  const auto counts = frequencies({.top_k = 2, .seed = 3}, logits_of({0.1, 0.3, 0.3, 0.3}), 20000);
  EXPECT_LT(chi_square(counts, {0, 0.5, 0.5, 0}), 10.9);  // 1 degree: 0.1 %
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(sample({.top_k = 1, .seed = seed}, {1.0F, 4.0F, 4.0F}), 1);
  }
}

TEST(Sampler, TopPKeepsTheFewestTokensThatHoldTheMass) {
  const std::vector<float> logits = logits_of({0.1, 0.5, 0.3, 0.1});
  EXPECT_LT(chi_square(frequencies({.top_p = 0.75F, .seed = 4}, logits, 20000), {0, 0.625, 0.375, 0}), 10.9);
  // One token is always kept, however small top_p is.
  EXPECT_EQ(sample({.top_p = 0}, logits), 1);
  // 0.81 needs a third token; of the two equals the lower id is taken.
  const auto counts = frequencies({.top_p = 0.81F, .seed = 5}, logits, 20000);
  EXPECT_LT(chi_square(counts, {1.0 / 9, 5.0 / 9, 3.0 / 9, 0}), 13.9);
}

TEST(Sampler, TopPIsAFractionOfWhatTopKLeft) {
  // Top-2 leaves 0.4 and 0.3, that is 0.571 and 0.429: 0.55 needs one of them, 0.6 both.
  const std::vector<float> logits = logits_of({0.4, 0.3, 0.2, 0.1});
  EXPECT_EQ(frequencies({.top_k = 2, .top_p = 0.55F}, logits, 200)[0], 200);
  const auto both = frequencies({.top_k = 2, .top_p = 0.6F, .seed = 6}, logits, 20000);
  EXPECT_LT(chi_square(both, {4.0 / 7, 3.0 / 7, 0, 0}), 10.9);
}

TEST(Sampler, MinPIsAFractionOfTheBest) {
  const auto counts = frequencies({.min_p = 0.5F, .seed = 7}, logits_of({0.45, 0.1, 0.25, 0.2}), 20000);
  EXPECT_LT(chi_square(counts, {0.45 / 0.7, 0, 0.25 / 0.7, 0}), 10.9);
}

TEST(Sampler, RepetitionPenaltyCountsPromptAndOutputOnce) {
  const SamplingOptions options{.temperature = 0, .repetition_penalty = 2};
  EXPECT_EQ(sample(options, {4.0F, 3.0F, 1.0F}, {0, 0, 0}, 3), 1);   // 4 becomes 2, however often it stands
  EXPECT_EQ(sample(options, {4.0F, 3.0F, 1.0F}, {0, 1}, 1), 0);      // 2 against 1.5
  EXPECT_EQ(sample(options, {-1.0F, -1.5F, -9.0F}, {0}, 0), 1);      // -1 becomes -2
  EXPECT_EQ(sample(options, {4.0F, 3.0F}, {-1, 2, 1000000}, 1), 0);  // ids beyond the row are nobody's
}

TEST(Sampler, PresenceAndFrequencyCountTheOutputOnly) {
  const std::vector<float> logits = {2.0F, 1.5F, 1.2F};
  const SamplingOptions presence{.temperature = 0, .presence_penalty = 0.6F};
  EXPECT_EQ(sample(presence, logits, {0, 0, 0}, 3), 0);
  EXPECT_EQ(sample(presence, logits, {0, 0, 0}, 2), 1);  // 1.4, 1.5, 1.2
  const SamplingOptions frequency{.temperature = 0, .frequency_penalty = 0.3F};
  EXPECT_EQ(sample(frequency, logits, {0}, 0), 0);              // 1.7
  EXPECT_EQ(sample(frequency, logits, {0, 0}, 0), 1);           // 1.4
  EXPECT_EQ(sample(frequency, logits, {0, 0, 0, 1, 1}, 0), 2);  // 1.1, 0.9, 1.2
}

TEST(Sampler, PenaltiesComeBeforeTopK) {
  const SamplingOptions options{.top_k = 1, .presence_penalty = 2};
  EXPECT_EQ(sample(options, {2.0F, 1.0F}, {0}, 0), 1);
}

TEST(Sampler, SameSeedSameTokens) {
  const std::vector<float> logits(50, 0.0F);
  const auto tokens = [&](std::uint64_t seed) {
    Sampler sampler({.top_p = 0.9F, .seed = seed});
    std::vector<std::int32_t> history = {1, 2, 3};
    for (int i = 0; i < 40; ++i) history.push_back(*sampler.sample(logits, history, 3));
    return history;
  };
  EXPECT_EQ(tokens(5), tokens(5));
  EXPECT_NE(tokens(5), tokens(6));
  // The n-th token does not depend on a sampler's own past.
  const auto history = tokens(5);
  EXPECT_EQ(sample({.top_p = 0.9F, .seed = 5}, logits, {history.begin(), history.end() - 1}, 3),
            history.back());
}

TEST(Sampler, ExtremeLogitsAndTemperatures) {
  constexpr float kMax = std::numeric_limits<float>::max();
  EXPECT_EQ(sample({}, {-kMax, kMax, 0.0F}), 1);
  EXPECT_EQ(sample({.temperature = 1e-38F}, {1.0F, std::nextafter(1.0F, 2.0F)}), 1);
  const auto flat = frequencies({.temperature = kMax, .seed = 8}, {-100.0F, 100.0F}, 20000);
  EXPECT_LT(chi_square(flat, {0.5, 0.5}), 10.9);
  EXPECT_EQ(sample({.top_k = 5, .top_p = 0.5F, .min_p = 1}, {-kInfinity, -kInfinity, -3.0F}), 2);
}

TEST(SamplingOptions, OutOfRangeIsNamed) {
  EXPECT_TRUE(validate({}).ok());
  const auto refused = [](const SamplingOptions& options, const std::string& name) {
    const Status status = validate(options);
    return !status.ok() && status.error().message.find(name + " must be") == 0;
  };
  EXPECT_TRUE(refused({.temperature = -1}, "temperature"));
  EXPECT_TRUE(refused({.temperature = std::nanf("")}, "temperature"));
  EXPECT_TRUE(refused({.top_k = -1}, "top_k"));
  EXPECT_TRUE(refused({.top_p = -0.1F}, "top_p"));
  EXPECT_TRUE(refused({.top_p = 1.5F}, "top_p"));
  EXPECT_TRUE(refused({.min_p = -0.1F}, "min_p"));
  EXPECT_TRUE(refused({.repetition_penalty = 0}, "repetition_penalty"));
  EXPECT_TRUE(refused({.presence_penalty = kInfinity}, "presence_penalty"));
  EXPECT_TRUE(refused({.frequency_penalty = std::nanf("")}, "frequency_penalty"));
}

}  // namespace
}  // namespace firstlight
