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
    double read_speed = 0;   // of the memory, beside the run
  };
  std::vector<Run> runs;
  /// By node of the graph, seconds in one step of decode or in one whole prompt: on average, and at best,
  /// each node for itself, which other work on the machine disturbs least. Empty: not asked for.
  std::vector<double> node_mean;
  std::vector<double> node_best;
  std::vector<double> distinct_experts;  // by node: different experts that a step's rows chose, on average
};

class Meter {
 public:
  /// Called with the tokens done and all of them while a context is filled.
  using Progress = std::function<void(std::int64_t done, std::int64_t total)>;

  /// Opens as many sequences as the model was loaded for. Steps have at most LoadOptions::step_tokens rows.
  /// For distinct_experts the model must keep its values `experts.N`. `read_speed` is asked before and after
  /// each run, which has the mean of both.
  static Result<std::unique_ptr<Meter>> create(Model& model, std::function<double()> read_speed);
  ~Meter();
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  /// Fills the context of the first sequence with random tokens up to `depth`, which must not be below the
  /// current one, and copies caches and states to the others. Measurements start from here. Only the first
  /// `computed` tokens of a context are computed, whole pages; behind them their pages are repeated, which
  /// is much faster and leaves keys and values of the usual size, but not those that the tokens would have.
  Status deepen(std::int64_t depth, std::int64_t computed, const Progress& progress = {});

  /// Times `tokens` tokens of one sequence after the context, in steps of at most `chunk`, `repeat` times
  /// from the same state.
  Result<MeterTimes> prefill(std::int64_t tokens, std::int64_t chunk, std::int64_t repeat, bool nodes);

  /// Times `tokens` steps in which each of the first `streams` sequences adds one token of its own.
  Result<MeterTimes> decode(std::int64_t tokens, std::int64_t streams, std::int64_t repeat, bool nodes);

 private:
  Meter(Model& model, std::function<double()> read_speed);
  void rewind();
  /// Takes the first sequence from `depth_` to whole pages before `depth`, by repeating its first pages.
  Result<std::int64_t> repeat_pages(std::int64_t depth);
  /// Appends tokens to the first sequence in steps of at most `chunk`.
  Status append(std::int64_t position, std::span<const std::int32_t> tokens, std::int64_t chunk, bool sampled,
                const Progress& progress = {});
  /// One step for each `streams` of the ids. Adds up the experts chosen in `distinct` if it is not null.
  Status decode_steps(std::span<const std::int32_t> ids, std::int64_t streams, std::vector<double>* distinct);
  std::vector<std::int32_t> random_tokens(std::int64_t count);
  Result<MeterTimes> measure(std::int64_t repeat, bool nodes, const std::function<Status()>& run);
  /// A step of decode or a whole prompt is over: takes what its nodes took.
  void end_timed_unit();
  void count_experts(std::int64_t rows, std::vector<double>& distinct) const;

  Model* model_;
  StepRunner runner_;
  std::function<double()> read_speed_;
  std::vector<SequenceCache> caches_;
  std::vector<std::pair<std::size_t, ValueId>> choices_;  // nodes of experts, and where their numbers are
  std::int64_t depth_ = 0;
  std::vector<std::vector<std::uint8_t>> states_;  // of each sequence at `depth_`
  std::uint64_t drawn_ = 0;                        // random tokens so far
  // While nodes are timed: those of the current step or prompt, the sums, and the least of each.
  std::vector<double> node_now_;
  std::vector<double> node_sum_;
  std::vector<double> node_best_;
  std::int64_t units_ = 0;
};

}  // namespace firstlight
