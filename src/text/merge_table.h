// The joins of a byte-pair vocabulary: which two tokens become which third one, and in what order of rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/result.h"

namespace firstlight {

/// Immutable once built.
class MergeTable {
 public:
  static constexpr std::int32_t kLargestId = (1 << 21) - 2;  // three numbers share a 64-bit word
  static constexpr std::size_t kMaxMerges = (std::size_t{1} << 22) - 1;

  struct Merge {
    std::int32_t left;
    std::int32_t right;
    std::int32_t result;
  };

  /// The rank of `merges[i]` is i; of several for the same pair the last counts. Ids must be 0 to kLargestId,
  /// merges at most kMaxMerges.
  static MergeTable by_position(const std::vector<Merge>& merges);

  /// The rank of each merge is the id of its result. `each(take)` calls take(merge) for all merges; it is
  /// called twice, so that they need not be kept.
  template <class Each>
  static MergeTable by_result(const Each& each) {
    std::size_t count = 0;
    each([&](const Merge&) { ++count; });
    MergeTable table(count);
    each([&](const Merge& merge) { table.insert(merge, static_cast<std::uint32_t>(merge.result)); });
    return table;
  }

  /// The rank at which the two tokens are joined, kNone if never. kNone is larger than any rank.
  [[nodiscard]] std::uint32_t find(std::int32_t left, std::int32_t right) const {
    const std::uint64_t key = key_of(left, right);
    for (std::size_t i = home(key);; i = i + 1 == slots_.size() ? 0 : i + 1) {
      const std::uint64_t slot = slots_[i];
      if (slot >> kRankBits == key) return static_cast<std::uint32_t>(slot & kRankMask);
      if (slot == kEmpty) return kNone;
    }
  }
  [[nodiscard]] std::int32_t result(std::uint32_t rank) const {
    return results_.empty() ? static_cast<std::int32_t>(rank) : results_[rank];
  }
  /// Every rank is below this.
  [[nodiscard]] std::uint32_t rank_limit() const { return rank_limit_; }

  static constexpr std::uint32_t kNone = UINT32_MAX;

  /// Without merges.
  MergeTable() : MergeTable(0) {}

 private:
  static constexpr int kRankBits = 22;
  static constexpr int kIdBits = 21;
  static constexpr std::uint64_t kRankMask = (std::uint64_t{1} << kRankBits) - 1;
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};  // ids of kLargestId + 1

  explicit MergeTable(std::size_t count) : slots_(count + count / 2 + 2, kEmpty) {}
  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << kIdBits) |
           static_cast<std::uint32_t>(right);
  }
  /// Any number of slots: a table that doubles would be half empty at times.
  [[nodiscard]] std::size_t home(std::uint64_t key) const {
    const std::uint64_t mixed = (key * 0x9E3779B97F4A7C15U) >> 32;  // 2^64 / golden ratio
    return static_cast<std::size_t>((mixed * slots_.size()) >> 32);
  }
  void insert(const Merge& merge, std::uint32_t rank);

  std::vector<std::uint64_t> slots_;  // key and rank; at most two thirds full
  std::vector<std::int32_t> results_;
  std::uint32_t rank_limit_ = 0;
};

}  // namespace firstlight
