// Puts pieces of sequences into one step and runs it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/model.h"

namespace firstlight {

/// Where tokens come from. Arithmetic looks at it only where RunSettings say so.
enum class Origin : std::uint8_t {
  kPrompt,
  kGenerated,  // by the model
};

/// The next tokens of one sequence. Its cache must have room for them (CachePool::grow).
struct Piece {
  const SequenceCache* cache = nullptr;
  std::int64_t position = 0;  // tokens before these
  std::span<const std::int32_t> tokens;
  Origin origin = Origin::kPrompt;
};

enum class Sampled : std::uint8_t {
  kNone,
  kLast,  // the last row of each piece
  kAll,
};

/// Reused between steps, so that a step allocates nothing once its vectors have grown.
class StepRunner {
 public:
  explicit StepRunner(Model& model);

  /// Runs the pieces, at most LoadOptions::step_tokens rows together. `forced` by node of the model's graph,
  /// or empty.
  void run(std::span<const Piece> pieces, Sampled sampled, std::span<const std::int32_t* const> forced = {});

  /// From now on adds the time of each of the graph's nodes to its place in `seconds`; empty: no longer.
  void time_nodes(std::span<double> seconds) { seconds_ = seconds; }

  /// Logits of sampled row r of the last step, [vocab].
  [[nodiscard]] std::span<const float> logits(std::int64_t r) const;

 private:
  Model* model_;
  std::vector<std::int32_t> tokens_;
  std::vector<SequenceRows> sequences_;
  std::span<double> seconds_;
  std::vector<std::int32_t> sampled_;
};

}  // namespace firstlight
