// A graph made ready to run: kernels with packed weights, planned buffers, cache places. Static: running a
// step allocates nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "cache/layout.h"
#include "cache/reservation.h"
#include "graph/graph.h"
#include "ops/kernel.h"

namespace firstlight {

struct ProgramOptions {
  StepLimits limits;
  Isa isa = Isa::kGeneric;
  bool f32 = true;
  int threads = 1;
  RunSettings settings = {};
  std::vector<ValueId> keep;     // values that stay readable until the next step
  ThreadPool* pool = nullptr;    // packs the weights; null: the calling thread does
  PackedStore* store = nullptr;  // of matrices packed before
};

/// The declarations of all nodes, and where they lie.
CacheLayout cache_layout_of(const Graph& graph, bool f32);

class Program {
 public:
  /// `weights[i]` is graph.weights()[i]. `packed` is called after each node with the index of the last weight
  /// it has read. The graph must outlive the program.
  static Result<std::unique_ptr<Program>> compile(const Graph& graph, const ProgramOptions& options,
                                                  const std::vector<const WeightSource*>& weights,
                                                  const std::function<void(const Node&)>& packed);

  /// Runs one step. The step must respect the limits. `seconds`, if not empty, has a place for each of the
  /// graph's nodes, to which the time of the node is added.
  void run(const Step& step, ThreadPool& pool, std::span<double> seconds = {});

  /// A value of the last step: the logits or one of ProgramOptions::keep; f32 or i32 [rows, width].
  [[nodiscard]] const void* value(ValueId id) const;

  [[nodiscard]] const Graph& graph() const { return *graph_; }
  [[nodiscard]] const StepLimits& limits() const { return limits_; }
  [[nodiscard]] std::int64_t buffer_bytes() const { return arena_.bytes(); }
  [[nodiscard]] std::int64_t weight_bytes() const;
  [[nodiscard]] const Kernel& kernel(std::size_t node) const { return *nodes_[node].kernel; }

 private:
  struct Runner {
    std::unique_ptr<Kernel> kernel;
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
  };
  Program() = default;

  const Graph* graph_ = nullptr;
  StepLimits limits_;
  std::vector<Runner> nodes_;
  std::vector<std::uint8_t*> place_;  // by value; nullptr for weights
  Reservation arena_;
  std::uint8_t* scratch_ = nullptr;
};

/// Bytes of buffers (without kernels' scratch) that a program of these limits needs.
std::int64_t buffer_bytes_of(const Graph& graph, const StepLimits& limits, const std::vector<ValueId>& keep);

}  // namespace firstlight
