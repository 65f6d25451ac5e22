// A queue of positions by rank, for texts so long that a heap's cache misses would dominate: ranks are small
// whole numbers, so a tree of bits finds the lowest one in a few steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace firstlight {

class RankQueue {
 public:
  /// For ranks below `rank_limit`.
  explicit RankQueue(std::uint32_t rank_limit);

  void push(std::uint32_t rank, std::uint32_t position);

  /// The lowest rank in the queue, kNone if it is empty.
  [[nodiscard]] std::uint32_t lowest() const;

  /// Takes all positions of that rank out, in ascending order.
  void take(std::uint32_t rank, std::vector<std::uint32_t>& positions);

  /// Forgets the memory of what was taken; the queue must be empty.
  void rewind() { entries_.clear(); }

  static constexpr std::uint32_t kNone = UINT32_MAX;

 private:
  struct Entry {
    std::uint32_t position;
    std::uint32_t next;  // of the same rank, in the order of pushing; the last leads back to the first
  };
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> last_;  // by rank: index in entries_, kNone for none
  // levels_[0] has a bit for each rank, each further level one for each word of the level below.
  std::vector<std::vector<std::uint64_t>> levels_;
};

}  // namespace firstlight
