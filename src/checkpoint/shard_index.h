// model.safetensors.index.json: which file holds which tensor.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace firstlight {

struct ShardIndex {
  struct Entry {
    std::string tensor;
    std::uint32_t file = 0;  // position in `files`
  };
  std::vector<std::string> files;  // plain names, sorted
  std::vector<Entry> entries;      // sorted by tensor
};

/// An index of half a million tensors has some 60 MB; this leaves room for models several times larger.
inline constexpr std::size_t kMaxIndexBytes = std::size_t{512} << 20;

/// Reads {"metadata": ..., "weight_map": {tensor: file}}. File names must be plain names that end in
/// ".safetensors": an index cannot reach outside its folder. `path` is for messages.
Result<ShardIndex> parse_shard_index(std::string_view text, const std::string& path);

}  // namespace firstlight
