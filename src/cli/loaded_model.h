// A checkpoint made ready to talk to, in two stages: first everything that is known without reading weights,
// so that mistakes show at once, then the weights.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/generation_config.h"
#include "cli/model_flags.h"
#include "engine/model.h"
#include "engine/session.h"
#include "python/tracer.h"
#include "text/tokenizer.h"

namespace firstlight {

struct LoadedModel {
  ModelFlags flags;
  TracedModel traced;  // its graph moves into `model`
  std::unique_ptr<Tokenizer> tokenizer;
  GenerationDefaults defaults;
  std::vector<std::int32_t> end_tokens;
  Checkpoint checkpoint;             // before `model`, which reads from it
  std::unique_ptr<Model> model;      // after load_weights()
  std::unique_ptr<Session> session;  // after load_weights()
  double load_seconds = 0;
};

/// config.json, tokenizer, generation_config.json and the headers of the weight files.
Result<std::unique_ptr<LoadedModel>> open_model(const ModelFlags& flags);

/// The folder's tensors; an empty checkpoint when the weights are dummies.
Result<Checkpoint> open_checkpoint(const ModelFlags& flags);

/// Bytes of the tensors of a checkpoint that could be opened; 0 of one that could not; unknown for dummies.
std::optional<std::int64_t> stored_bytes(const ModelFlags& flags, const Result<Checkpoint>& checkpoint);

/// With the checkpoint's weights, or with dummies. `checkpoint` must stay open.
Result<std::unique_ptr<Model>> load_model(const ModelFlags& flags, Graph graph, const Checkpoint& checkpoint,
                                          LoadOptions options);

/// Reads the weights, with progress on a terminal, and opens a session.
Status load_weights(LoadedModel& loaded);

}  // namespace firstlight
