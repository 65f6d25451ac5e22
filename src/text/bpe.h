// Byte-pair encoding of one piece: repeatedly joins the adjacent pair of lowest rank, the leftmost of equals
// first, until no pair can be joined.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "text/merge_table.h"
#include "text/rank_queue.h"

namespace firstlight {

/// Joins the symbols of one piece after the other. Keeps only memory between calls, not for two threads.
class BpeMerger {
 public:
  /// The table must outlive this.
  explicit BpeMerger(const MergeTable& table) : table_(&table) {}

  /// Replaces `symbols` (ids, at most 2^32 - 2 of them) by what they are joined to.
  void merge(std::vector<std::int32_t>& symbols);

 private:
  struct Node {
    std::int32_t id;         // kGone: joined into an earlier one
    std::uint32_t rank;      // of this node with the next
    std::uint32_t previous;  // of the first node: unused
    std::uint32_t next;      // number of nodes: none
  };
  /// Positions of one rank, those before `done` dealt with.
  struct Batch {
    std::uint32_t rank;
    std::size_t done;
    std::vector<std::uint32_t> positions;
  };
  void merge_few(std::vector<std::int32_t>& symbols);
  void make_nodes(const std::vector<std::int32_t>& symbols);
  [[nodiscard]] std::uint32_t rank_at(std::uint32_t position) const;
  template <class Push>
  void join(std::uint32_t position, const Push& push);
  void refill(Batch& batch);
  void merge_by_queue();
  void merge_by_heap();

  const MergeTable* table_;
  std::vector<std::uint32_t> ranks_;  // merge_few: of each symbol with the next
  std::vector<Node> nodes_;           // by position of the symbol
  std::vector<std::uint64_t> heap_;   // rank and position
  std::vector<std::uint32_t> positions_;
  std::optional<RankQueue> queue_;  // made for the first long piece
};

}  // namespace firstlight
