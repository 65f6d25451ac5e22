// The flags that choose a checkpoint and how it is run; shared by every subcommand that runs one.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "engine/packed_cache.h"
#include "ops/settings.h"

namespace CLI {
class App;
}

namespace firstlight {

struct ModelFlags {
  std::string folder;
  bool f32 = false;
  int threads = 0;           // 0: one a core
  std::int64_t context = 0;  // 0: the model's maximum, or what fits into memory
  bool dummy = false;        // --load-format dummy: random weights, none are read
  KeepPacked keep_packed = {.when = KeepPacked::When::kIfItPays};
  RunSettings settings = {};
};

/// "int8", "int4" or "mxfp4".
HeldAs held_as(const std::string& name);

void add_model_flags(CLI::App& app, ModelFlags& flags);

/// What is wrong with the flags by themselves, whatever the checkpoint is.
Status check_model_flags(const ModelFlags& flags);

/// An Error where `path` is one of the files in `folder` that make up its checkpoint: none of them is
/// replaced.
Status check_not_of_checkpoint(const std::string& path, const std::string& folder);

}  // namespace firstlight
