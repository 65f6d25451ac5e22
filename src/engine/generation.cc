#include "engine/generation.h"

#include <algorithm>
#include <chrono>

#include "text/stop_strings.h"
#include "text/stream_decoder.h"

namespace firstlight {
namespace {

class Stopwatch {
 public:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// From sampled ids to the text that may be shown.
class AnswerText {
 public:
  AnswerText(const Tokenizer& tokenizer, StopStrings stops, const GenerationCallbacks& callbacks)
      : decoder_(tokenizer, /*skip_special=*/true), stops_(std::move(stops)), callbacks_(&callbacks) {}

  void push(std::int32_t id) {
    std::string characters;
    decoder_.push(id, characters);
    show([&](std::string& out) { stops_.push(characters, out); });
  }
  void finish() {
    std::string characters;
    decoder_.finish(characters);
    show([&](std::string& out) {
      stops_.push(characters, out);
      stops_.finish(out);
    });
  }
  [[nodiscard]] bool stopped() const { return stops_.stopped(); }
  std::string take() { return std::move(text_); }

 private:
  template <class Produce>
  void show(const Produce& produce) {
    const std::size_t before = text_.size();
    produce(text_);
    if (text_.size() != before && callbacks_->text) callbacks_->text(std::string_view(text_).substr(before));
  }

  StreamDecoder decoder_;
  StopStrings stops_;
  const GenerationCallbacks* callbacks_;
  std::string text_;
};

bool is_cancelled(const GenerationCallbacks& callbacks) {
  return callbacks.cancelled && callbacks.cancelled();
}

/// Brings the prompt into the cache, by way of its stable part; true unless cancelled on the way.
Result<bool> prefill(TokenSequence& sequence, std::span<const std::int32_t> prompt,
                     std::int64_t stable_tokens, const GenerationCallbacks& callbacks, std::int64_t& cached) {
  cached = sequence.keep_common_prefix(prompt);
  const auto total = static_cast<std::int64_t>(prompt.size());
  // A mark at the prompt's very end would serve nothing: the answer follows on from there.
  const std::int64_t stable = stable_tokens > cached && stable_tokens < total ? stable_tokens : cached;
  for (const std::int64_t end : {stable, total}) {
    const auto begin = static_cast<std::int64_t>(sequence.tokens().size());
    if (begin == end) continue;
    const auto part = prompt.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
    const auto progress = [&](std::int64_t done, std::int64_t) {
      if (callbacks.prefill) callbacks.prefill(begin + done - cached, total - cached);
      return !is_cancelled(callbacks);
    };
    FL_TRY(sequence.append(part, progress, Origin::kPrompt));
    if (static_cast<std::int64_t>(sequence.tokens().size()) != end) return false;
    if (end == stable) sequence.mark();
  }
  return true;
}

bool contains(std::span<const std::int32_t> ids, std::int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

std::vector<std::int32_t> end_token_ids(std::span<const std::int32_t> config_ids,
                                        const GenerationDefaults& defaults, const Tokenizer& tokenizer) {
  std::vector<std::int32_t> ids(config_ids.begin(), config_ids.end());
  ids.insert(ids.end(), defaults.eos_token_ids.begin(), defaults.eos_token_ids.end());
  if (const auto id = tokenizer.eos_id()) ids.push_back(*id);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEndToken:
      return "end_token";
    case FinishReason::kStopString:
      return "stop_string";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kContextFull:
      return "context_full";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  check(false, "unknown finish reason");
  return {};
}

Result<Generation> generate(TokenSequence& sequence, const Tokenizer& tokenizer,
                            std::span<const std::int32_t> prompt, const GenerationOptions& options,
                            const GenerationCallbacks& callbacks) {
  FL_TRY(validate(options.sampling));
  FL_ASSIGN(StopStrings stops, StopStrings::create(options.stop));
  if (prompt.empty()) return Error{"the prompt is empty: there is no token to continue"};
  const auto capacity = static_cast<std::size_t>(sequence.capacity());
  if (prompt.size() > capacity) {
    return Error{"the prompt has " + std::to_string(prompt.size()) + " tokens, but the context holds only " +
                 std::to_string(capacity)};
  }

  Generation result;
  result.stats.prompt_tokens = static_cast<std::int64_t>(prompt.size());
  const Stopwatch prefill_time;
  FL_ASSIGN(const bool complete,
            prefill(sequence, prompt, options.stable_tokens, callbacks, result.stats.cached_tokens));
  result.stats.prefill_seconds = prefill_time.seconds();

  const Stopwatch decode_time;
  const std::size_t known =
      std::min(sequence.logits().size(), static_cast<std::size_t>(tokenizer.vocab_size()));
  Sampler sampler(options.sampling);
  AnswerText answer(tokenizer, std::move(stops), callbacks);
  result.finish = FinishReason::kCancelled;
  while (complete && !is_cancelled(callbacks)) {
    FL_ASSIGN(const std::int32_t id,
              sampler.sample(sequence.logits().first(known), sequence.tokens(), prompt.size()));
    result.tokens.push_back(id);
    if (!options.ignore_end_tokens && contains(options.end_tokens, id)) {
      result.finish = FinishReason::kEndToken;
      break;
    }
    answer.push(id);
    if (answer.stopped()) break;
    if (static_cast<std::int64_t>(result.tokens.size()) == options.max_tokens) {
      result.finish = FinishReason::kLength;
      break;
    }
    if (sequence.tokens().size() == capacity) {
      result.finish = FinishReason::kContextFull;
      break;
    }
    FL_TRY(sequence.append({&id, 1}, {}, Origin::kGenerated));
  }
  answer.finish();
  if (answer.stopped()) result.finish = FinishReason::kStopString;
  result.text = answer.take();
  result.stats.generated_tokens = static_cast<std::int64_t>(result.tokens.size());
  result.stats.decode_seconds = decode_time.seconds();
  return result;
}

}  // namespace firstlight
