// Attention of rows whose queries are absorbed: u_h = W_UK[h]^T q_h meets the cached latents themselves.
//
// The tree of a row and head is fixed by its list of positions alone: tiles of 64 entries, each continuing
// the softmax and the sums of the one before, in partitions of 4 tiles, merged in order into the result.
#pragma once

#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "ops/mla/setup.h"

namespace firstlight {

/// Where a row of a block stands.
struct MlaRow {
  const std::int64_t* pages;
  std::int64_t position;
  std::int64_t length;         // entries it attends
  const std::int32_t* chosen;  // [length] or null: 0 .. length - 1
};

class MlaAbsorbed {
 public:
  /// For blocks of up to `block_rows` rows.
  MlaAbsorbed(const MlaSetup& setup, std::int64_t block_rows);

  [[nodiscard]] std::int64_t scratch_bytes() const { return Scratch(*this, nullptr).bytes; }
  /// u [rows, heads, padded], absorbed queries followed by their rotated channels, becomes the weighted
  /// latents in its first `latent` elements.
  void run(const Step& step, const MlaRow* rows, std::int64_t count, float* u, std::uint8_t* scratch,
           ThreadPool& pool) const;

 private:
  /// Queries that walk over the cache together: some heads of neighbours in one sequence, or of one row.
  struct Walk {
    std::int64_t row, rows, head, heads;
    std::int64_t length;  // of its last row, which has the longest
    [[nodiscard]] std::int64_t lanes() const { return rows * heads; }
    [[nodiscard]] std::int64_t partitions() const {
      return (length + kMlaPartitionRows - 1) / kMlaPartitionRows;
    }
    [[nodiscard]] std::int64_t cost() const { return lanes() * length; }
  };
  /// A partition of a walk.
  struct Item {
    std::int64_t walk, partition;
  };
  struct Scratch {
    Scratch(const MlaAbsorbed& op, std::uint8_t* base);
    Walk* walks;
    Item* items;         // [slots]
    std::byte* queries;  // a thread: panels
    std::byte* tile;     // a thread: operands of a tile, unless cached rows are that
    float* partials;     // a thread: a partition and a total
    float* slots;        // partitions of which each is some thread's, and as many totals
    std::int64_t query_bytes, tile_bytes, bytes;
  };
  struct Block {
    const Step& step;
    const MlaRow* rows;
    float* u;
    Scratch scratch;
    std::int64_t walks;
  };
  /// What a thread has at hand.
  struct Hand {
    std::byte* queries;
    std::byte* tile;
    const Walk* packed;  // whose queries are in `queries`
  };

  [[nodiscard]] std::int64_t most_walks() const;
  std::int64_t make_walks(Block& block, std::int64_t count, std::int64_t heads, std::int64_t group) const;
  void plan(Block& block, std::int64_t count, int threads) const;
  [[nodiscard]] bool whole_walks_fit(const Block& block, int threads) const;
  void run_whole(const Block& block, ThreadPool& pool) const;
  void run_shared(const Block& block, ThreadPool& pool) const;
  [[nodiscard]] Hand hand(const Block& block, int thread) const;
  /// `after` is what the thread attends next, or null: its first rows are fetched meanwhile.
  void attend(const Block& block, const Item& item, const Item* after, const MlaPartial& out,
              Hand& hand) const;
  void locate(const Step& step, const MlaRow& row, std::int64_t first, std::int64_t count,
              std::span<const std::byte*> table) const;
  void finish(const Block& block, const Walk& walk, const MlaPartial& total, Range lanes) const;

  const MlaSetup& setup_;
  std::int64_t block_rows_;
  std::int64_t stride_;  // floats of a query's values
  std::int64_t slots_;   // partitions computed between two meetings of the threads
  std::int64_t slot_floats_;
};

}  // namespace firstlight
