// The one loop that turns a prompt into an answer: append the prompt, then sample and append until something
// ends it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/generation_config.h"
#include "engine/sampler.h"
#include "engine/session.h"
#include "text/tokenizer.h"

namespace firstlight {

/// What a generation runs on: tokens in a cache and the logits after them. The members mean what those of
/// Session mean.
class TokenSequence {
 public:
  virtual ~TokenSequence() = default;
  [[nodiscard]] virtual const std::vector<std::int32_t>& tokens() const = 0;
  [[nodiscard]] virtual std::int64_t capacity() const = 0;
  virtual Status append(std::span<const std::int32_t> tokens, const Session::Progress& progress,
                        Origin origin) = 0;
  [[nodiscard]] virtual std::span<const float> logits() const = 0;
  virtual std::int64_t keep_common_prefix(std::span<const std::int32_t> wanted) = 0;
  virtual void mark() = 0;
};

/// A Session as a TokenSequence; the session must outlive it.
class SessionSequence final : public TokenSequence {
 public:
  explicit SessionSequence(Session& session) : session_(&session) {}
  [[nodiscard]] const std::vector<std::int32_t>& tokens() const override { return session_->tokens(); }
  [[nodiscard]] std::int64_t capacity() const override { return session_->capacity(); }
  Status append(std::span<const std::int32_t> tokens, const Session::Progress& progress,
                Origin origin) override {
    return session_->append(tokens, progress, origin);
  }
  [[nodiscard]] std::span<const float> logits() const override { return session_->logits(); }
  std::int64_t keep_common_prefix(std::span<const std::int32_t> wanted) override {
    return session_->keep_common_prefix(wanted);
  }
  void mark() override { session_->mark(); }

 private:
  Session* session_;
};

struct GenerationOptions {
  SamplingOptions sampling;
  std::int64_t max_tokens = 0;  // 0: until the context is full
  std::vector<std::string> stop;
  std::vector<std::int32_t> end_tokens;
  bool ignore_end_tokens = false;
  /// The next prompt is expected to begin with this many tokens of this one: the state there is kept, so that
  /// models with recurrent state need not start over. 0: nothing is expected.
  std::int64_t stable_tokens = 0;
};

/// All ids that end an answer: those of config.json, of generation_config.json and the tokenizer's. Published
/// checkpoints often name a further one in only one of the three.
std::vector<std::int32_t> end_token_ids(std::span<const std::int32_t> config_ids,
                                        const GenerationDefaults& defaults, const Tokenizer& tokenizer);

enum class FinishReason {
  kEndToken,     // the model ended its answer
  kStopString,   // one of the stop strings appeared
  kLength,       // max_tokens
  kContextFull,  // no room for a further token
  kCancelled,    // GenerationCallbacks::cancelled
};

/// "end_token", "stop_string", "length", "context_full", "cancelled".
std::string_view finish_reason_name(FinishReason reason);

/// Each may be empty.
struct GenerationCallbacks {
  std::function<void(std::int64_t done, std::int64_t total)>
      prefill;                                 // tokens, after each step of the prompt
  std::function<void(std::string_view)> text;  // whole characters, as soon as certain
  std::function<bool()> cancelled;             // asked before each step
};

struct GenerationStats {
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;     // of the prompt's, already in the cache
  std::int64_t generated_tokens = 0;  // the end token included
  double prefill_seconds = 0;
  double decode_seconds = 0;
};

struct Generation {
  std::string text;                  // without end token, special tokens and stop string
  std::vector<std::int32_t> tokens;  // what was sampled, the end token included
  FinishReason finish = FinishReason::kEndToken;
  GenerationStats stats;
};

/// Fails if the prompt is empty or does not fit, and if the model fails; `sequence` stays usable. Afterwards
/// it holds the prompt and all sampled tokens but the last. Ids that the tokenizer does not have (padding of
/// the vocabulary) are never sampled.
Result<Generation> generate(TokenSequence& sequence, const Tokenizer& tokenizer,
                            std::span<const std::int32_t> prompt, const GenerationOptions& options,
                            const GenerationCallbacks& callbacks = {});

}  // namespace firstlight
