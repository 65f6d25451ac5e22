#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/random.h"

namespace firstlight {
namespace {

Status require(bool holds, const char* name, const char* expected, double value) {
  if (holds) return {};
  return Error{std::string(name) + " must be " + expected + ", not " + std::to_string(value)};
}

}  // namespace

Status validate(const SamplingOptions& o) {
  FL_TRY(require(std::isfinite(o.temperature) && o.temperature >= 0, "temperature", "at least 0",
                 o.temperature));
  FL_TRY(require(o.top_k >= 0, "top_k", "at least 0", o.top_k));
  FL_TRY(require(o.top_p >= 0 && o.top_p <= 1, "top_p", "between 0 and 1", o.top_p));
  FL_TRY(require(o.min_p >= 0 && o.min_p <= 1, "min_p", "between 0 and 1", o.min_p));
  // Far beyond any use, near enough to keep a penalised logit from overflowing.
  FL_TRY(require(o.repetition_penalty >= 0.01F && o.repetition_penalty <= 100, "repetition_penalty",
                 "between 0.01 and 100", o.repetition_penalty));
  const auto moderate = [](float x) { return x >= -100 && x <= 100; };
  FL_TRY(
      require(moderate(o.presence_penalty), "presence_penalty", "between -100 and 100", o.presence_penalty));
  return require(moderate(o.frequency_penalty), "frequency_penalty", "between -100 and 100",
                 o.frequency_penalty);
}

bool Sampler::less_likely(const Candidate& a, const Candidate& b) {
  return a.logit < b.logit || (a.logit == b.logit && a.id > b.id);
}

Result<std::int32_t> Sampler::sample(std::span<const float> logits, std::span<const std::int32_t> history,
                                     std::size_t prompt_tokens) {
  if (std::any_of(logits.begin(), logits.end(), [](float x) { return std::isnan(x); })) {
    return Error{"the model produced NaN: no token can be chosen from its logits"};
  }
  logits_.assign(logits.begin(), logits.end());
  apply_penalties(history, prompt_tokens);

  const auto best = std::max_element(logits_.begin(), logits_.end());  // the first, so the lowest id
  if (best == logits_.end() || std::isinf(*best)) {
    return Error{"no token can be chosen: the largest logit is " +
                 std::string(best == logits_.end() ? "missing"
                             : *best > 0           ? "infinite"
                                                   : "minus infinity")};
  }
  if (options_.temperature == 0) return static_cast<std::int32_t>(best - logits_.begin());

  collect_candidates(*best);
  keep_top_k();
  keep_top_p();
  keep_min_p();
  return draw(random_uniform(options_.seed, history.size() - prompt_tokens));
}

void Sampler::apply_penalties(std::span<const std::int32_t> history, std::size_t prompt_tokens) {
  const bool repetition = options_.repetition_penalty != 1;
  const bool output = options_.presence_penalty != 0 || options_.frequency_penalty != 0;
  if (!repetition && !output) return;

  counts_.assign(logits_.size(), 0);
  seen_.assign(logits_.size(), false);
  for (std::size_t i = 0; i < history.size(); ++i) {
    const auto id = static_cast<std::size_t>(history[i]);
    if (history[i] < 0 || id >= logits_.size()) continue;
    seen_[id] = true;
    if (i >= prompt_tokens) ++counts_[id];
  }
  for (std::size_t id = 0; id < logits_.size(); ++id) {
    if (!seen_[id]) continue;
    float& logit = logits_[id];
    if (repetition) {
      // Keskar et al. 2019 (CTRL), section 4.1, with the sign rule that all implementations have added since:
      // dividing a negative logit would make the token more likely.
      logit = logit > 0 ? logit / options_.repetition_penalty : logit * options_.repetition_penalty;
    }
    if (counts_[id] > 0) {
      logit -= options_.presence_penalty + options_.frequency_penalty * static_cast<float>(counts_[id]);
    }
  }
}

void Sampler::collect_candidates(float best) {
  const double temperature = options_.temperature;
  candidates_.clear();
  for (std::size_t id = 0; id < logits_.size(); ++id) {
    const double distance = static_cast<double>(logits_[id]) - static_cast<double>(best);  // <= 0
    candidates_.push_back({logits_[id], static_cast<std::int32_t>(id), std::exp(distance / temperature)});
  }
}

void Sampler::keep_top_k() {
  const auto k = static_cast<std::size_t>(options_.top_k);
  if (k == 0 || k >= candidates_.size()) return;
  const auto end = candidates_.begin() + options_.top_k;
  std::partial_sort(candidates_.begin(), end, candidates_.end(),
                    [](const Candidate& a, const Candidate& b) { return less_likely(b, a); });
  candidates_.resize(k);
}

void Sampler::keep_top_p() {
  if (options_.top_p == 1) return;
  double all = 0;
  for (const Candidate& c : candidates_) all += c.weight;
  // Tokens leave a heap most likely first, and usually few have to: cheaper than sorting the vocabulary.
  auto rest = candidates_.end();  // [begin, rest) is the heap, [rest, end) what is kept
  std::make_heap(candidates_.begin(), rest, less_likely);
  double mass = 0;
  do {
    std::pop_heap(candidates_.begin(), rest, less_likely);
    mass += (--rest)->weight;
  } while (mass < options_.top_p * all && rest != candidates_.begin());
  candidates_.erase(candidates_.begin(), rest);
}

void Sampler::keep_min_p() {
  // The best candidate's weight is exp(0) = 1, so the fraction is the weight itself.
  std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < options_.min_p; });
}

std::int32_t Sampler::draw(double uniform) const {
  double all = 0;
  for (const Candidate& c : candidates_) all += c.weight;
  double left = uniform * all;
  for (const Candidate& c : candidates_) {
    left -= c.weight;
    if (left < 0) return c.id;
  }
  // Rounding can leave a crumb after the last one: it belongs to the last that has any probability.
  for (std::size_t i = candidates_.size(); i-- > 0;) {
    if (candidates_[i].weight > 0) return candidates_[i].id;
  }
  check(false, "the most likely token was dropped");
  return 0;
}

}  // namespace firstlight
