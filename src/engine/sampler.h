// Chooses the next token from a row of logits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace firstlight {

/// Every default is neutral but the temperature's: 1 samples from the model's own distribution.
struct SamplingOptions {
  float temperature = 1.0F;         // >= 0; 0: always the most likely token
  int top_k = 0;                    // keep the k most likely tokens; 0: all
  float top_p = 1.0F;               // [0, 1]: keep the fewest tokens (at least one) that hold this much
  float min_p = 0.0F;               // [0, 1]: drop what is less likely than this fraction of the best
  float repetition_penalty = 1.0F;  // on tokens of prompt and output: divides positive logits
  float presence_penalty = 0.0F;    // subtracted once for a token of the output
  float frequency_penalty = 0.0F;   // subtracted for each time the token stands in the output
  std::uint64_t seed = 0;
};

/// One clear sentence for an option out of its range.
Status validate(const SamplingOptions& options);

/// Deterministic: the choice is a function of the options, the logits and the history. The draw for the n-th
/// generated token is the n-th of the seed's stream, whatever was sampled before.
/// Order: penalties, temperature, top-k, top-p, min-p. Of equal logits the lowest id is the more likely.
class Sampler {
 public:
  /// `options` must be valid.
  explicit Sampler(const SamplingOptions& options) : options_(options) {}

  /// `history` is the prompt's tokens followed by those generated so far. Ids beyond the logits are ignored.
  /// Fails if a logit is NaN or +inf, or if all are -inf.
  Result<std::int32_t> sample(std::span<const float> logits, std::span<const std::int32_t> history,
                              std::size_t prompt_tokens);

 private:
  struct Candidate {
    float logit;
    std::int32_t id;
    double weight;  // exp((logit - best) / temperature): probability times an unknown constant
  };
  static bool less_likely(const Candidate& a, const Candidate& b);

  void apply_penalties(std::span<const std::int32_t> history, std::size_t prompt_tokens);
  void collect_candidates(float best);
  void keep_top_k();
  void keep_top_p();
  void keep_min_p();
  std::int32_t draw(double uniform) const;

  SamplingOptions options_;
  std::vector<float> logits_;          // [vocab], after penalties
  std::vector<std::int32_t> counts_;   // [vocab], in the output
  std::vector<bool> seen_;             // [vocab], in prompt or output
  std::vector<Candidate> candidates_;  // what is left to draw from
};

}  // namespace firstlight
