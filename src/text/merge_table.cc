#include "text/merge_table.h"

#include <algorithm>

namespace firstlight {

void MergeTable::insert(const Merge& merge, std::uint32_t rank) {
  const std::uint64_t key = key_of(merge.left, merge.right);
  std::size_t i = home(key);
  while (slots_[i] != kEmpty && slots_[i] >> kRankBits != key) i = i + 1 == slots_.size() ? 0 : i + 1;
  slots_[i] = (key << kRankBits) | rank;
  rank_limit_ = std::max(rank_limit_, rank + 1);
}

MergeTable MergeTable::by_position(const std::vector<Merge>& merges) {
  MergeTable table(merges.size());
  table.results_.reserve(merges.size());
  for (const Merge& merge : merges) {
    table.insert(merge, static_cast<std::uint32_t>(table.results_.size()));
    table.results_.push_back(merge.result);
  }
  return table;
}

}  // namespace firstlight
