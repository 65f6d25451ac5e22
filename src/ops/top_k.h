// The k best of a stream of (score, position), exact and independent of how the stream is cut.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace firstlight {

/// A number that orders candidates: score descending, then position ascending = key ascending.
/// -0 counts as less than 0: a caller to whom they are one score offers 0. A NaN has a place by its bits.
inline std::uint64_t candidate_key(float score, std::uint32_t position) {
  const auto bits = std::bit_cast<std::uint32_t>(score);
  const std::uint32_t ascending = (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
  return (std::uint64_t{~ascending} << 32) | position;
}
inline std::uint32_t candidate_position(std::uint64_t key) { return static_cast<std::uint32_t>(key); }

/// Keeps the k smallest keys in memory of the caller. Keys are unique, so the kept set is a function of
/// the keys offered, not of their order.
class TopK {
 public:
  /// Room needed in keys: twice k, so that the cost of halving is spread over k insertions; a small k gets
  /// more.
  static constexpr std::int64_t capacity(std::int64_t k) { return k + std::max<std::int64_t>(k, 256); }

  TopK(std::uint64_t* memory, std::int64_t k) : keys_(memory), k_(k) {}

  void offer(std::uint64_t key) {
    if (key >= limit_) return;
    if (count_ == capacity(k_)) shrink();
    if (key < limit_) keys_[count_++] = key;
  }
  /// Drops all but the k best.
  void shrink() {
    if (count_ <= k_) return;
    std::nth_element(keys_, keys_ + k_ - 1, keys_ + count_);
    count_ = k_;
    limit_ = keys_[k_ - 1];
  }
  /// Keys at or above this cannot enter.
  [[nodiscard]] std::uint64_t limit() const { return limit_; }
  [[nodiscard]] const std::uint64_t* begin() const { return keys_; }
  [[nodiscard]] const std::uint64_t* end() const { return keys_ + count_; }
  [[nodiscard]] std::int64_t size() const { return count_; }

 private:
  std::uint64_t* keys_;
  std::int64_t k_;
  std::int64_t count_ = 0;
  std::uint64_t limit_ = ~std::uint64_t{0};
};

}  // namespace firstlight
