// The pool of pages and of per-sequence state blocks. A page holds kPageTokens tokens of all layers; a
// sequence owns a list of pages and one state block.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "cache/layout.h"
#include "cache/reservation.h"

namespace firstlight {

/// What one sequence holds. Filled and emptied by CachePool only.
struct SequenceCache {
  std::vector<std::int64_t> pages;  // pages[p] holds tokens 64p .. 64p+63
  std::int64_t slot = -1;           // state block; -1: none
};

class CachePool {
 public:
  /// Room for `pages` pages and `sequences` state blocks; memory is touched as it is used.
  static Result<std::unique_ptr<CachePool>> create(CacheLayout layout, std::int64_t pages,
                                                   std::int64_t sequences);

  [[nodiscard]] const CacheLayout& layout() const { return layout_; }
  [[nodiscard]] std::uint8_t* page_base() const { return pages_.data(); }
  [[nodiscard]] std::uint8_t* state(const SequenceCache& sequence) const {
    return states_.data() + sequence.slot * layout_.state_bytes;
  }
  [[nodiscard]] std::int64_t free_pages() const { return static_cast<std::int64_t>(free_pages_.size()); }

  /// Gives the sequence a zeroed state block. An Error when all are taken.
  Status open(SequenceCache& sequence);
  /// Makes room for `tokens` tokens in all; an Error, and nothing changed, when pages run out.
  Status grow(SequenceCache& sequence, std::int64_t tokens);
  /// Keeps the pages of the first `tokens` tokens.
  void truncate(SequenceCache& sequence, std::int64_t tokens);
  /// Takes everything back.
  void close(SequenceCache& sequence);

  /// Every page and block is free or owned exactly once (`sequences`: all that are open). For tests and idle
  /// times.
  [[nodiscard]] Status check_integrity(const std::vector<const SequenceCache*>& sequences) const;

 private:
  CachePool() = default;
  CacheLayout layout_;
  Reservation pages_;
  Reservation states_;
  std::int64_t page_count_ = 0;
  std::int64_t slot_count_ = 0;
  std::vector<std::int64_t> free_pages_;  // the next one at the back
  std::vector<std::int64_t> free_slots_;
};

}  // namespace firstlight
