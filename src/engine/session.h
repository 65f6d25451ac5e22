// One conversation's tokens and their caches. Tokens can be appended (prefill and decode are the same
// thing: appending) and taken back to an earlier mark.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/model.h"
#include "engine/step_runner.h"

namespace firstlight {

class Session {
 public:
  /// Takes a state slot and pages from the model's cache; gives them back when destroyed.
  static Result<std::unique_ptr<Session>> create(Model& model);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Tokens in the cache.
  [[nodiscard]] const std::vector<std::int32_t>& tokens() const { return tokens_; }
  /// The most tokens this session can hold (`--ctx`).
  [[nodiscard]] std::int64_t capacity() const;

  /// Called between steps with the tokens done so far; false stops there (nothing is lost: the tokens done
  /// are in the cache).
  using Progress = std::function<bool(std::int64_t done, std::int64_t total)>;

  /// Runs `tokens` after those in the cache, in steps of at most the model's step size. Afterwards logits()
  /// belongs to the last one. An Error (context full, bad id) leaves the session as it was.
  Status append(std::span<const std::int32_t> tokens, const Progress& progress = {},
                Origin origin = Origin::kPrompt);

  /// Logits [vocab] after the last appended token; empty before the first append.
  [[nodiscard]] std::span<const float> logits() const { return logits_; }

  /// Makes the cache hold exactly `wanted`'s first tokens that it already shares with it: drops what differs,
  /// going back to the latest mark if recurrent state demands it. Returns how many of `wanted` are in the
  /// cache now (always < wanted.size(), so that an append of the rest yields logits).
  std::int64_t keep_common_prefix(std::span<const std::int32_t> wanted);

  /// Remembers this position so that keep_common_prefix can come back to it (the recurrent state is copied).
  void mark();

  /// Forgets everything.
  void clear();

 private:
  explicit Session(Model& model) : model_(&model), runner_(model) {}
  struct Mark {
    std::int64_t position = 0;
    std::vector<std::uint8_t> state;
  };
  void rewind(const Mark* mark);

  Model* model_;
  StepRunner runner_;
  SequenceCache cache_;
  std::vector<std::int32_t> tokens_;
  std::vector<float> logits_;
  std::vector<Mark> marks_;
};

}  // namespace firstlight
