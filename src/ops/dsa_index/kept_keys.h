// Keys that may be among the k best of a row, as bounds of their scores arrive: a bounded buffer, a limit
// that rises, and the exact choice at the end. Scores are integers in the order of candidate_key.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include "ops/dsa_index/kernels.h"

namespace firstlight {

/// Two numbers between which a limit probably lies, or any two.
using LikelyLimits = std::array<std::int32_t, 2>;

/// Numbers low < high with k elements, counted by `count(t)`: elements >= t, at `low` and fewer at `high`:
/// neighbours, or what was found when enough(n), n elements, was true. The answer lies in [low, high]. Both
/// `likely` limits are tried first; then every second number is where `aim` elements would be if they lay
/// evenly, so that few are counted, and the others halve the rest, so that never many are.
template <class Count, class Enough>
std::pair<std::int64_t, std::int64_t> bracket(std::int64_t k, std::int64_t aim, const Count& count,
                                              const Enough& enough, std::int64_t low, std::int64_t high,
                                              std::span<const std::int32_t> likely = {}) {
  ++high;                    // from here on: k reach `low`, and not `high`
  std::int64_t at_low = -1;  // elements, once counted
  std::int64_t at_high = -1;
  for (std::size_t turn = 0; high - low > 1; ++turn) {
    std::int64_t middle = low + (high - low) / 2;
    if (turn < likely.size()) {
      middle = likely[turn];
    } else if (turn % 2 == 0 && at_low > at_high && at_high >= 0) {
      middle = high - (high - low) * (aim - at_high) / (at_low - at_high);
    }
    middle = std::clamp(middle, low + 1, high - 1);
    const std::int64_t n = count(static_cast<std::int32_t>(middle));
    (n < k ? high : low) = middle;
    (n < k ? at_high : at_low) = n;
    if (enough(n)) break;
  }
  return {low, high};
}

/// The largest t that at least k elements reach. With `slack` any t that at least k and at most k + slack
/// reach will do. It is known to lie in [low, high]; `low` is the answer when fewer than k reach anything.
template <class Count>
std::int32_t best_limit(std::int64_t k, std::int64_t slack, const Count& count, std::int64_t low = INT32_MIN,
                        std::int64_t high = INT32_MAX, std::span<const std::int32_t> likely = {}) {
  const auto enough = [&](std::int64_t n) { return n >= k && n <= k + slack; };
  return static_cast<std::int32_t>(bracket(k, k + slack / 2, count, enough, low, high, likely).first);
}

/// The same from above: a t that fewer than k elements, and at least k - slack, are larger than. Never below
/// the answer of best_limit for k.
template <class Count>
std::int32_t limit_above(std::int64_t k, std::int64_t slack, const Count& count, std::int64_t low,
                         std::span<const std::int32_t> likely = {}) {
  const auto enough = [&](std::int64_t n) { return n < k && n >= k - slack; };
  return static_cast<std::int32_t>(bracket(k, k - slack / 2, count, enough, low, INT32_MAX, likely).second -
                                   1);
}

/// Keys in ascending position, each with lower <= score <= upper; equal bounds are the score itself.
/// What is not kept is not among the k best, of those offered and in the order score descending, position
/// ascending.
class KeptKeys {
 public:
  /// Room for `k` best of `offered` keys: as many as are offered, or so many that most of the work of
  /// throwing out is spread over several k. Elements of each of the kArrays arrays.
  static constexpr std::int64_t capacity(std::int64_t k, std::int64_t offered) {
    return std::min(4 * std::max<std::int64_t>(k, 256), std::max(k, offered)) + 2 * kMostOffered;
  }
  static constexpr std::int64_t kMostOffered = 64;
  static constexpr std::int64_t kArrays = 5;

  KeptKeys() = default;
  KeptKeys(std::int32_t* memory, std::int64_t k, std::int64_t capacity)
      : lower_(memory),
        upper_(memory + capacity),
        position_(memory + 2 * capacity),
        score_(memory + 3 * capacity),
        open_(memory + 4 * capacity),
        k_(k),
        capacity_(capacity) {}

  /// Up to kMostOffered keys behind all that were offered before. `score(*this)` replaces all
  /// bounds by scores; it is called when bounds alone do not throw out enough.
  template <class Score>
  void offer(const DsaIndexKernels& kernels, std::int32_t* lower, std::int32_t* upper,
             const std::int32_t* position, std::int64_t n, const Score& score) {
    // keep() may overwrite 15 elements behind the last.
    if (count_ + n + kSlack > capacity_) make_room(kernels, score);
    count_ += kernels.keep(upper, n, limit_, lower, upper, position, lower_ + count_, upper_ + count_,
                           position_ + count_);
  }

  using Bound = std::int32_t* (KeptKeys::*)() const;
  /// Where the k-th best of a bound of several buffers together will be found, by a few of its elements.
  static LikelyLimits likely_limits(std::span<const KeptKeys> parts, Bound bound, std::int64_t k) {
    constexpr std::int64_t kSamples = 96;
    constexpr std::int64_t kMargin = 6;  // samples: about one and a half times their deviation
    std::int64_t total = 0;
    for (const KeptKeys& part : parts) total += part.count_;
    if (total < 4 * kSamples) return {0, 0};
    std::array<std::int32_t, static_cast<std::size_t>(kSamples)> samples;
    std::int64_t taken = 0;
    std::int64_t before = 0;
    for (const KeptKeys& part : parts) {
      for (; taken < kSamples && taken * total / kSamples - before < part.count_; ++taken) {
        samples[static_cast<std::size_t>(taken)] = (part.*bound)()[taken * total / kSamples - before];
      }
      before += part.count_;
    }
    std::ranges::sort(samples, std::greater());
    const std::int64_t rank = k * kSamples / total;
    const auto at = [&](std::int64_t i) {
      return samples[static_cast<std::size_t>(std::clamp<std::int64_t>(i, 0, kSamples - 1))];
    };
    return {at(rank + kMargin), at(rank - kMargin)};
  }

  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] std::int32_t* lower() const { return lower_; }
  [[nodiscard]] std::int32_t* upper() const { return upper_; }
  [[nodiscard]] std::int32_t* position() const { return position_; }
  /// Of the final choice; see choose().
  [[nodiscard]] std::int32_t* score() const { return score_; }
  /// Room for a list of those whose score is open.
  [[nodiscard]] std::int32_t* open() const { return open_; }

 private:
  static constexpr std::int64_t kSlack = 16;

  template <class Score>
  void make_room(const DsaIndexKernels& kernels, const Score& score) {
    if (count_ <= k_) return;
    const auto reached = [&](std::int32_t t) { return kernels.count_from(lower_, count_, t); };
    const LikelyLimits likely = likely_limits({this, 1}, &KeptKeys::lower, k_);
    // limit_ may be higher already, above entries that stay because they came first.
    const std::int32_t out = best_limit(k_, k_ / 16, reached, INT32_MIN, INT32_MAX, likely);
    limit_ = std::max(limit_, out);
    count_ = kernels.keep(upper_, count_, out, lower_, upper_, position_, lower_, upper_, position_);
    if (count_ <= k_ + (capacity_ - k_) / 2) return;
    score(*this);
    const std::int32_t worst = best_limit(k_, 0, reached);
    std::int64_t ties = k_ - (worst == INT32_MAX ? 0 : reached(worst + 1));
    std::int64_t kept = 0;
    for (std::int64_t i = 0; i < count_; ++i) {
      if (lower_[i] < worst || (lower_[i] == worst && ties-- <= 0)) continue;
      lower_[kept] = upper_[kept] = lower_[i];
      position_[kept++] = position_[i];
    }
    count_ = kept;
    // k are at least as good and come first: a later one must be better.
    limit_ = std::max(limit_, worst == INT32_MAX ? worst : worst + 1);
  }

  std::int32_t* lower_ = nullptr;
  std::int32_t* upper_ = nullptr;
  std::int32_t* position_ = nullptr;
  std::int32_t* score_ = nullptr;
  std::int32_t* open_ = nullptr;
  std::int64_t k_ = 0;
  std::int64_t capacity_ = 0;
  std::int64_t count_ = 0;
  std::int32_t limit_ = INT32_MIN;  // a key offered with an upper bound below this is not kept
};

/// Limits of the k best of several buffers together: what cannot be among them has upper < out, what must
/// be has lower > in, and the score of the last is not below `out` and not above `in`.
struct ChoiceLimits {
  std::int32_t out, in;
};
inline ChoiceLimits choice_limits(const DsaIndexKernels& kernels, std::span<const KeptKeys> parts,
                                  std::int64_t k) {
  const auto reached_by = [&](KeptKeys::Bound bound) {
    return [&kernels, parts, bound](std::int32_t t) {
      std::int64_t n = 0;
      for (const KeptKeys& part : parts) n += kernels.count_from((part.*bound)(), part.count(), t);
      return n;
    };
  };
  const LikelyLimits lower = KeptKeys::likely_limits(parts, &KeptKeys::lower, k);
  const LikelyLimits upper = KeptKeys::likely_limits(parts, &KeptKeys::upper, k);
  const std::int32_t out = best_limit(k, k / 64, reached_by(&KeptKeys::lower), INT32_MIN, INT32_MAX, lower);
  // Fewer than k upper bounds are above the largest number that k of them reach, or above a larger one.
  return {.out = out, .in = limit_above(k, k / 64, reached_by(&KeptKeys::upper), out, upper)};
}

/// The positions of the k best by score() of several buffers, whose positions follow one another: ascending,
/// to out[k]. Returns how many there are. Uses the memory of the buffers' bounds.
inline std::int64_t choose(const DsaIndexKernels& kernels, std::span<const KeptKeys> parts, std::int64_t k,
                           ChoiceLimits limits, std::int32_t* out) {
  const auto reached = [&](std::int32_t t) {
    std::int64_t n = 0;
    for (const KeptKeys& part : parts) n += kernels.count_from(part.score(), part.count(), t);
    return n;
  };
  const std::int32_t worst = best_limit(k, 0, reached, limits.out, limits.in);
  std::int64_t ties = k - (worst == INT32_MAX ? 0 : reached(worst + 1));
  std::int64_t chosen = 0;
  for (const KeptKeys& part : parts) {
    const std::int64_t n = kernels.keep(part.score(), part.count(), worst, part.score(), part.position(),
                                        part.position(), part.upper(), part.lower(), part.lower());
    for (std::int64_t i = 0; i < n && chosen < k; ++i) {
      if (part.upper()[i] == worst && ties-- <= 0) continue;
      out[chosen++] = part.lower()[i];
    }
  }
  return chosen;
}

}  // namespace firstlight
