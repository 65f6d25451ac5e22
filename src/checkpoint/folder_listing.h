// Which files of a folder make up its checkpoint.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace firstlight {

struct FolderListing {
  bool has_index = false;
  std::vector<std::string> shards;  // sorted; those named like weights, whether the index lists them or not
  std::vector<std::string> others;  // sorted; safetensors files of other names
};

inline constexpr char kIndexName[] = "model.safetensors.index.json";

/// Whether a file of this name holds weights, or lists files that do, in any format.
bool is_weight_file(std::string_view name);

/// Looks for model.safetensors, model-<i>-of-<n>.safetensors and the index. Without an index the shards must
/// be one file or a complete set 1..n; anything else, and a folder whose weights have another format, is an
/// Error.
Result<FolderListing> list_checkpoint_folder(const std::string& folder);

}  // namespace firstlight
