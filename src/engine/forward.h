// Runs prompts and writes down values on the way, for people who check numbers (`firstlight forward`).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/model.h"

namespace firstlight {

/// Kinds of values. Names are "<kind>.<layer>", or the kind alone.
const std::vector<std::string>& default_value_kinds();  // hidden, final, logits, experts, topk
const std::vector<std::string>& request_value_kinds();  // state, conv, mixed_attn, mixed_mlp

struct ForwardPrompt {
  std::string name;
  std::vector<std::int32_t> ids;  // [T], T >= 1
  /// Choices to take instead of computing them, by value name ("experts.3"): [T, width].
  std::map<std::string, std::vector<std::int32_t>> forced;
};

struct ForwardOptions {
  std::vector<std::string> kinds;  // values wanted
  std::int64_t chunk = 0;          // tokens of a prompt a step; 0: as many as the model's step allows
  std::int64_t greedy = 0;         // tokens to continue with
  bool together = false;           // all prompts in the same steps
};

struct ForwardValue {
  std::string name;  // "p0.hidden.3"
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<std::uint8_t> data;
};

/// Names of the graph's values of these kinds: what LoadOptions::keep must hold.
std::vector<std::string> kept_names(const Graph& graph, const std::vector<std::string>& kinds);

/// The model must have been loaded with kept_names, room for all sequences (one, or all together), and
/// sampled_rows as large as step_tokens.
Result<std::vector<ForwardValue>> run_forward(Model& model, const std::vector<ForwardPrompt>& prompts,
                                              const ForwardOptions& options);

}  // namespace firstlight
