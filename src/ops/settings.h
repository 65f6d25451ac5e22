// How a model is run, where there is a choice that is not the model's: which formats weights are held in,
// which form an operator computes in. Chosen by the user when a model is loaded; the same for all of its
// nodes.
#pragma once

#include <cstdint>

namespace firstlight {

/// How weights of matrix products lie in memory.
enum class HeldAs : std::uint8_t {
  kStored,  // as the checkpoint has them: bf16, or its 4 bits
  kInt8,    // 8 bits, a scale an output
  kInt4,    // 4-bit integers, a scale an output and 32 inputs
  kMxfp4,   // 4-bit floats with a power of two for 32 inputs
};

/// "stored", "int8", "int4", "mxfp4".
constexpr const char* held_name(HeldAs held) {
  switch (held) {
    case HeldAs::kStored:
      return "stored";
    case HeldAs::kInt8:
      return "int8";
    case HeldAs::kInt4:
      return "int4";
    case HeldAs::kMxfp4:
      return "mxfp4";
  }
  return "?";
}

/// How dsa_index finds the best keys of a long context (spec dsa 4.4, 4.5).
enum class KeySearch : std::uint8_t {
  kFull,       // scores all keys
  kCertified,  // 8-bit scores with error bounds, exact scores for what may be chosen: the choice of kFull
  kTwoStage,   // exact scores of the keys in the pages whose mean key scores best: not the choice of kFull
};

struct RunSettings {
  HeldAs weights = HeldAs::kStored;
  HeldAs experts = HeldAs::kStored;  // of moe_experts
  /// Activations that meet weights of 8 or 4 bits have 8 bits, a scale a row and group (gemm.h). Those of
  /// `linear` have 16 where the weights have 8: most of what 8 bits lose is lost there, not in the experts.
  bool wide_activations = true;
  /// mla over all positions: rows of prompts are computed from expanded keys and values, rows that the model
  /// generated from latents. Bits of a token then depend on which of both it was, and still on nothing else.
  bool expanded_prefill = false;
  KeySearch key_search = KeySearch::kCertified;
  std::int64_t candidates = 16384;   // of kTwoStage: keys that are scored exactly
  std::int64_t min_context = 65536;  // of kTwoStage: shorter contexts are searched as with kCertified
};

}  // namespace firstlight
