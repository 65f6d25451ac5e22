// A loaded model: program, packed weights, cache pools. Sessions run on it, one step at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "cache/cache.h"
#include "checkpoint/checkpoint.h"
#include "device/cpu/isa.h"
#include "engine/packed_cache.h"
#include "engine/program.h"
#include "graph/graph.h"
#include "ops/kernel.h"

namespace firstlight {

struct LoadOptions {
  bool f32 = false;                // --dtype f32: f32 arithmetic and caches
  int threads = 0;                 // 0: one a core
  std::int64_t context = 0;        // tokens a sequence may hold; 0: the model's maximum, or what fits
  std::int64_t max_context = 0;    // the model's maximum
  std::int64_t step_tokens = 256;  // most rows of a step
  std::int64_t sampled_rows = 0;   // most rows with logits a step; 0: one a sequence
  std::int64_t sequences = 1;      // most sequences at once
  bool fuse = true;
  RunSettings settings = {};
  std::int32_t image_token_id = -1;  // refused in prompts: its rows would come from a vision tower
  std::vector<std::string> keep;     // named values that must be readable after a step
  /// Bytes of weights read so far and in all; called a few times a second during load.
  std::function<void(std::int64_t done, std::int64_t total)> progress;
  KeepPacked keep_packed = {};
  /// Bytes of packed weights written so far and in all, after a load whose weights are kept; called a few
  /// times a second.
  std::function<void(std::int64_t done, std::int64_t total)> write_progress = {};
};

class Model {
 public:
  /// Binds the graph's weights (strictly: every tensor is accounted for), checks memory before anything is
  /// read, packs, and builds the caches. Errors list everything that is wrong at once.
  /// The checkpoint must stay open as long as the model lives: embeddings are read from its mapping.
  static Result<std::unique_ptr<Model>> load(Graph graph, const Checkpoint& checkpoint, LoadOptions options);
  /// The same with random weights (engine/dummy_weights.h): nothing is read, nothing has to stay open.
  static Result<std::unique_ptr<Model>> load_dummy(Graph graph, LoadOptions options);

  [[nodiscard]] const Graph& graph() const { return graph_; }
  [[nodiscard]] const LoadOptions& options() const { return options_; }
  [[nodiscard]] std::int64_t context() const { return options_.context; }
  [[nodiscard]] std::int64_t vocab() const { return vocab_; }
  /// Whether these tokens can be run: ids within the vocabulary, no images.
  [[nodiscard]] Status check_tokens(std::span<const std::int32_t> tokens) const;
  [[nodiscard]] std::int64_t weight_bytes() const { return weight_bytes_; }
  /// What a weight, by its index in the graph, is held as: kStored stands for bf16 and f32.
  [[nodiscard]] HeldAs held(std::size_t weight) const { return held_[weight]; }
  /// Bytes that the model takes once its contexts are full (weights, caches, buffers): what was held against
  /// the available memory when it was loaded.
  [[nodiscard]] std::int64_t planned_bytes() const { return planned_bytes_; }
  [[nodiscard]] Isa isa() const { return isa_; }
  [[nodiscard]] const std::vector<std::string>& notices() const { return notices_; }

  Program& program() { return *program_; }
  [[nodiscard]] const Program& program() const { return *program_; }
  CachePool& cache() { return *cache_; }
  ThreadPool& pool() { return *pool_; }

 private:
  Model() = default;
  static Result<std::unique_ptr<Model>> prepare(Graph graph, LoadOptions options);
  /// Compiles the program from `sources_` and makes the caches; `packed` as in Program::compile. Matrices are
  /// kept as `kept` says, if given.
  struct Kept {
    std::string path, key;
    std::int64_t stored_bytes;  // that the matrices are made from, and a little more
  };
  Status build(const std::function<void(const Node&)>& packed, const std::optional<Kept>& kept = {});
  void keep(PackedCache& cache, std::int64_t stored_bytes);
  Status choose_context(std::int64_t weight_bytes);

  Graph graph_;
  LoadOptions options_;
  Isa isa_ = Isa::kGeneric;
  std::int64_t vocab_ = 0;
  std::int64_t weight_bytes_ = 0;
  std::vector<HeldAs> held_;
  std::int64_t planned_bytes_ = 0;
  std::vector<std::string> notices_;
  std::vector<std::unique_ptr<WeightSource>> sources_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Program> program_;
  std::unique_ptr<CachePool> cache_;
};

}  // namespace firstlight
