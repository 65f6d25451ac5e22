// A checkpoint written again with its matrices in 8 or 4 bits, in the layout of compressed-tensors.
//
//   int8   X.weight_packed I32 [N, ceil(K/4)], X.weight_scale F32 [N, 1], X.weight_shape I64 [2]
//   int4   X.weight_packed I32 [N, K/8], X.weight_scale BF16 [N, K/32], X.weight_shape I64 [2]
//   mxfp4  X.weight_packed U8 [N, K/2], X.weight_scale U8 [N, K/32]
//
// The matrices are those that products in the model's arithmetic read (linear, the experts of
// moe_experts, and in 8 bits kv_b of mla), rounded as a run with --quantize rounds them
// (device/cpu/quantise.h): a run of what is written has the same bits. Everything else is copied. Sources:
// src/checkpoint/README.md, "Formats".
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/weights.h"
#include "graph/graph.h"
#include "ops/settings.h"

namespace firstlight {

struct QuantiseOptions {
  HeldAs experts = HeldAs::kInt8;    // of moe_experts
  HeldAs weights = HeldAs::kStored;  // of linear: the same, or kStored: copied
  int threads = 0;                   // 0: one a core
  std::int64_t shard_bytes = std::int64_t{4} << 30;
  /// Bytes of the checkpoint that are dealt with, a few times a second; false gives up.
  std::function<bool(std::int64_t done, std::int64_t total)> progress = {};
};

/// What will be written. Refers to the checkpoint.
class QuantisePlan {
 public:
  /// Fails, with all reasons, where the checkpoint does not fit the graph, is quantised already, or has
  /// nothing to quantise.
  static Result<QuantisePlan> make(const Graph& graph, const Checkpoint& checkpoint, QuantiseOptions options);

  /// Matrices that stay as they are stored although a run with --quantize holds them in few bits, and why.
  [[nodiscard]] const std::vector<std::string>& notices() const { return notices_; }
  [[nodiscard]] std::int64_t quantised() const { return quantised_; }  // matrices
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }          // of all tensors once written

  /// The value of quantization_config.
  [[nodiscard]] nlohmann::ordered_json config() const;

  /// Writes model.safetensors, or shards and their index, into an empty folder. A row at a time is in memory,
  /// times some. Fails on values that are not finite, and on a disk that does not take what is written.
  Status write(const std::string& folder) const;

 private:
  struct Tensor {
    const Checkpoint::Entry* entry;
    HeldAs form;
  };
  using Shard = std::vector<Tensor>;

  void cut_into_shards(const std::vector<HeldAs>& forms);
  Status write_index(const std::string& folder) const;

  const Checkpoint* checkpoint_ = nullptr;
  QuantiseOptions options_;
  HeldAs format_ = HeldAs::kStored;
  std::vector<Shard> shards_;
  std::vector<std::string> plain_modules_;  // with a matrix that is not quantised
  std::vector<std::string> notices_;
  std::int64_t quantised_ = 0;
  std::int64_t bytes_ = 0;
};

}  // namespace firstlight
