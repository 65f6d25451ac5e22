#include "cache/cache.h"

#include <cstring>
#include <string>

namespace firstlight {

Result<std::unique_ptr<CachePool>> CachePool::create(CacheLayout layout, std::int64_t pages,
                                                     std::int64_t sequences) {
  std::unique_ptr<CachePool> pool(new CachePool());
  FL_ASSIGN(pool->pages_, Reservation::create(pages * layout.page_bytes, "cache pages"));
  FL_ASSIGN(pool->states_, Reservation::create(sequences * layout.state_bytes, "sequence states"));
  pool->layout_ = std::move(layout);
  pool->page_count_ = pages;
  pool->slot_count_ = sequences;
  for (std::int64_t p = pages; p-- > 0;) pool->free_pages_.push_back(p);
  for (std::int64_t s = sequences; s-- > 0;) pool->free_slots_.push_back(s);
  return pool;
}

Status CachePool::open(SequenceCache& sequence) {
  check(sequence.slot < 0 && sequence.pages.empty(), "a sequence is opened twice");
  if (free_slots_.empty())
    return Error{"all " + std::to_string(slot_count_) + " sequences of the cache are taken"};
  sequence.slot = free_slots_.back();
  free_slots_.pop_back();
  if (layout_.state_bytes > 0) std::memset(state(sequence), 0, static_cast<std::size_t>(layout_.state_bytes));
  return {};
}

Status CachePool::grow(SequenceCache& sequence, std::int64_t tokens) {
  const std::int64_t wanted = (tokens + kPageTokens - 1) / kPageTokens;
  const std::int64_t more = wanted - static_cast<std::int64_t>(sequence.pages.size());
  if (more > free_pages()) {
    return Error{"the cache has " + std::to_string(free_pages()) + " free pages of " +
                 std::to_string(kPageTokens) + " tokens, " + std::to_string(more) + " more are needed"};
  }
  for (std::int64_t i = 0; i < more; ++i) {
    sequence.pages.push_back(free_pages_.back());
    free_pages_.pop_back();
  }
  return {};
}

void CachePool::truncate(SequenceCache& sequence, std::int64_t tokens) {
  const std::int64_t keep = (tokens + kPageTokens - 1) / kPageTokens;
  while (static_cast<std::int64_t>(sequence.pages.size()) > keep) {
    free_pages_.push_back(sequence.pages.back());
    sequence.pages.pop_back();
  }
}

void CachePool::close(SequenceCache& sequence) {
  truncate(sequence, 0);
  if (sequence.slot >= 0) free_slots_.push_back(sequence.slot);
  sequence.slot = -1;
}

Status CachePool::check_integrity(const std::vector<const SequenceCache*>& sequences) const {
  std::vector<int> pages(static_cast<std::size_t>(page_count_), 0);
  std::vector<int> slots(static_cast<std::size_t>(slot_count_), 0);
  for (const std::int64_t p : free_pages_) ++pages[static_cast<std::size_t>(p)];
  for (const std::int64_t s : free_slots_) ++slots[static_cast<std::size_t>(s)];
  for (const SequenceCache* sequence : sequences) {
    for (const std::int64_t p : sequence->pages) ++pages[static_cast<std::size_t>(p)];
    if (sequence->slot >= 0) ++slots[static_cast<std::size_t>(sequence->slot)];
  }
  for (std::size_t p = 0; p < pages.size(); ++p) {
    if (pages[p] != 1)
      return Error{"page " + std::to_string(p) + " has " + std::to_string(pages[p]) + " owners"};
  }
  for (std::size_t s = 0; s < slots.size(); ++s) {
    if (slots[s] != 1)
      return Error{"state " + std::to_string(s) + " has " + std::to_string(slots[s]) + " owners"};
  }
  return {};
}

}  // namespace firstlight
