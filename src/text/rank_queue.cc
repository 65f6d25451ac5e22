#include "text/rank_queue.h"

#include <algorithm>
#include <bit>

namespace firstlight {

RankQueue::RankQueue(std::uint32_t rank_limit) : last_(rank_limit, kNone) {
  std::size_t size = rank_limit;
  do {
    size = (size + 63) / 64;
    levels_.emplace_back(std::max<std::size_t>(size, 1));
  } while (size > 1);
}

void RankQueue::push(std::uint32_t rank, std::uint32_t position) {
  const auto index = static_cast<std::uint32_t>(entries_.size());
  if (last_[rank] == kNone) {
    entries_.push_back({position, index});
    std::size_t bit = rank;
    for (auto& level : levels_) {
      std::uint64_t& word = level[bit / 64];
      const bool was_empty = word == 0;
      word |= std::uint64_t{1} << (bit % 64);
      if (!was_empty) break;
      bit /= 64;
    }
  } else {
    Entry& last = entries_[last_[rank]];
    const std::uint32_t first = last.next;
    last.next = index;
    entries_.push_back({position, first});
  }
  last_[rank] = index;
}

std::uint32_t RankQueue::lowest() const {
  if (levels_.back()[0] == 0) return kNone;
  std::size_t index = 0;
  for (auto level = levels_.rbegin(); level != levels_.rend(); ++level) {
    index = index * 64 + static_cast<std::size_t>(std::countr_zero((*level)[index]));
  }
  return static_cast<std::uint32_t>(index);
}

void RankQueue::take(std::uint32_t rank, std::vector<std::uint32_t>& positions) {
  positions.clear();
  const std::uint32_t last = last_[rank];
  for (std::uint32_t i = entries_[last].next;; i = entries_[i].next) {
    positions.push_back(entries_[i].position);
    if (i == last) break;
  }
  if (!std::is_sorted(positions.begin(), positions.end())) std::sort(positions.begin(), positions.end());
  last_[rank] = kNone;
  std::size_t bit = rank;
  for (auto& level : levels_) {
    std::uint64_t& word = level[bit / 64];
    word &= ~(std::uint64_t{1} << (bit % 64));
    if (word != 0) break;
    bit /= 64;
  }
}

}  // namespace firstlight
