// From a checkpoint folder's config.json to a graph: runs the family's model file in the embedded
// interpreter, once. Nothing that comes with the checkpoint is executed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "graph/graph.h"
#include "python/models_folder.h"

namespace firstlight {

struct TracedModel {
  Graph graph;
  std::int64_t max_context = 0;  // tokens the model was made for
  std::int64_t vocab_size = 0;
  std::vector<std::int32_t> eos_token_ids;  // of config.json
  std::int32_t image_token_id = -1;         // stands for an image's rows in a prompt; -1: none
};

/// Traces `folder`/config.json with the model files of `models`. An Error lists every config problem at once.
/// `stored_bytes`, where they are known, are those of the checkpoint's tensors: a config that describes far
/// more weights than they can hold is refused before it costs memory.
Result<TracedModel> trace_model(const std::filesystem::path& folder, const std::filesystem::path& models,
                                std::optional<std::int64_t> stored_bytes = std::nullopt);

}  // namespace firstlight
