// Any text is a shard index or one Error; what an accepted index names lies in its folder.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "checkpoint/shard_index.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto index = firstlight::parse_shard_index({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!index.ok()) return 0;
  for (const auto& file : index->files) {
    if (file.find('/') != std::string::npos || !file.ends_with(".safetensors")) std::abort();
  }
  for (std::size_t i = 0; i < index->entries.size(); ++i) {
    if (index->entries[i].file >= index->files.size()) std::abort();
    if (i > 0 && index->entries[i - 1].tensor >= index->entries[i].tensor) std::abort();
  }
  return 0;
}
