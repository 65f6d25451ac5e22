// Attention of prompts from expanded keys and values, k = [W_UK c; k_pe] and v = W_UV c of every head: fewer
// products a pair of rows than with latents, at the price of expanding the whole context once a step.
//
// The tree of a row and head is fixed as in the absorbed form: tiles are pages, partitions of 4 are merged in
// order. Keys and values are rounded in bf16 mode. A row's result does not depend on what shares its step.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "ops/mla/setup.h"

namespace firstlight {

class MlaExpanded {
 public:
  explicit MlaExpanded(const MlaSetup& setup);

  [[nodiscard]] std::int64_t scratch_bytes() const { return Scratch(*this, nullptr).bytes; }
  /// q [rows, heads, nope + rope] -> o [rows, heads, v] of a sequence whose rows are in the cache.
  /// up_k: heads parts [nope, latent]; up_v: heads parts [v, latent].
  void run(const Step& step, const SequenceRows& sequence, const PackedMatrix& up_k, const PackedMatrix& up_v,
           const float* q, float* o, std::uint8_t* scratch, ThreadPool& pool) const;

 private:
  struct Scratch {
    Scratch(const MlaExpanded& op, std::uint8_t* base);
    float* rows;         // [partition, padded] cached rows
    std::uint8_t* gemm;  // these rows, prepared
    float* expanded;     // [partition, key or value elements]
    std::byte* keys;     // [partition] operands
    std::byte* values;   // [partition] operands
    std::byte* queries;  // panels of all rows of a step, in groups of kMlaMaxQueries
    float* totals;       // of all rows of a step, in the same groups
    float* part;         // a partition of one group
    std::int64_t bytes;  // of a thread, all of the above
  };
  struct Job {
    const Step& step;
    const SequenceRows& sequence;
    const PackedMatrix& up_k;
    const PackedMatrix& up_v;
    const float* q;
    float* o;
  };

  void run_head(const Job& job, std::int64_t head, Range rows, const Scratch& s) const;
  void expand(const Job& job, std::int64_t head, std::int64_t first, std::int64_t count,
              const Scratch& s) const;
  void multiply(const PackedMatrix& w, std::int64_t head, std::int64_t count, std::int64_t stride,
                const Scratch& s) const;
  void attend(const Job& job, Range rows, std::int64_t first, std::int64_t count, const std::byte* queries,
              const MlaPartial& out, const Scratch& s) const;

  const MlaSetup& setup_;
  std::int64_t key_, key_padded_, value_padded_;
  std::int64_t stride_;  // floats of a query's values
  std::int64_t group_floats_;
};

}  // namespace firstlight
