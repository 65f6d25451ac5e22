// Any bytes are the header of packed weights or one Error; all that an accepted one promises lies in the
// file.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "checkpoint/packed_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto index = firstlight::parse_packed_index({data, size}, "fuzz");
  if (!index.ok()) return 0;
  const auto end = static_cast<std::int64_t>(size);
  if (index->head_bytes < 0 || index->head_bytes > end) std::abort();
  std::int64_t total = 0;
  for (const auto& [name, entry] : index->entries) {
    if (entry.bytes <= 0 || entry.at < index->head_bytes || entry.at > end - entry.bytes) std::abort();
    if (entry.first_block < 1 || entry.first_block >= static_cast<std::int64_t>(index->checksums.size())) {
      std::abort();
    }
    total += entry.bytes;
  }
  if (total > end) std::abort();  // matrices do not overlap
  return 0;
}
