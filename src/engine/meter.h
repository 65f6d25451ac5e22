// Runs a model on random tokens to see how long steps take, at any depth of context and for several
// sequences in a step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/model.h"
#include "engine/step_runner.h"

namespace firstlight {

/// One measurement: what was timed, repeated.
struct MeterTimes {
  struct Run {
    double seconds = 0;      // by the wall clock
    double cpu_seconds = 0;  // of the process, all threads
  };
  std::vector<Run> runs;
  std::vector<double> node_seconds;      // by node of the graph, of all runs together; empty: not asked for
  std::vector<double> distinct_experts;  // by node: different experts that a step's rows chose, on average
};

class Meter {
 public:
  /// Called with the tokens done and all of them while a context is filled.
  using Progress = std::function<void(std::int64_t done, std::int64_t total)>;

  /// Opens as many sequences as the model was loaded for. Steps have at most LoadOptions::step_tokens rows.
  /// For distinct_experts the model must keep its values `experts.N`.
  static Result<std::unique_ptr<Meter>> create(Model& model);
  ~Meter();
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  /// Fills the context of the first sequence with random tokens up to `depth`, which must not be below the
  /// current one, and copies caches and states to the others. Measurements start from here.
  Status deepen(std::int64_t depth, const Progress& progress = {});

  /// Times `tokens` tokens of one sequence after the context, `repeat` times from the same state.
  Result<MeterTimes> prefill(std::int64_t tokens, std::int64_t repeat, bool nodes);

  /// Times `tokens` steps in which each of the first `streams` sequences adds one token of its own.
  Result<MeterTimes> decode(std::int64_t tokens, std::int64_t streams, std::int64_t repeat, bool nodes);

 private:
  explicit Meter(Model& model);
  void rewind();
  /// Appends tokens to the first sequence in steps.
  Status append(std::int64_t position, std::span<const std::int32_t> tokens, bool sampled,
                const Progress& progress = {});
  /// One step for each `streams` of the ids. Adds up the experts chosen in `distinct` if it is not null.
  Status decode_steps(std::span<const std::int32_t> ids, std::int64_t streams, std::vector<double>* distinct);
  std::vector<std::int32_t> random_tokens(std::int64_t count);
  Result<MeterTimes> measure(std::int64_t repeat, bool nodes, const std::function<Status()>& run);
  void count_experts(std::int64_t rows, std::vector<double>& distinct) const;

  Model* model_;
  StepRunner runner_;
  std::vector<SequenceCache> caches_;
  std::vector<std::pair<std::size_t, ValueId>> choices_;  // nodes of experts, and where their numbers are
  std::int64_t depth_ = 0;
  std::vector<std::vector<std::uint8_t>> states_;  // of each sequence at `depth_`
  std::uint64_t drawn_ = 0;                        // random tokens so far
};

}  // namespace firstlight
