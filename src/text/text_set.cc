#include "text/text_set.h"

#include <algorithm>
#include <utility>

namespace firstlight {

TextSet::TextSet(std::vector<std::string> texts) : texts_(std::move(texts)) {
  for (std::uint32_t i = 0; i < texts_.size(); ++i) sorted_.push_back(i);
  std::stable_sort(sorted_.begin(), sorted_.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return texts_[a] < texts_[b]; });
  for (std::size_t i = 0; i < sorted_.size(); ++i) {
    Range& range = by_first_byte_[static_cast<std::uint8_t>(texts_[sorted_[i]][0])];
    if (range.end == 0) range.begin = i;
    range.end = i + 1;
  }
}

std::optional<std::pair<std::size_t, std::size_t>> TextSet::duplicate() const {
  for (std::size_t i = 1; i < sorted_.size(); ++i) {
    if (texts_[sorted_[i - 1]] == texts_[sorted_[i]])
      return std::pair<std::size_t, std::size_t>(sorted_[i - 1], sorted_[i]);
  }
  return std::nullopt;
}

std::optional<TextSet::Match> TextSet::longest_at(std::string_view text, std::size_t begin) const {
  // [low, high) of sorted_ shares its first `depth` bytes with the text; the shortest text comes first.
  auto [low, high] = by_first_byte_[static_cast<std::uint8_t>(text[begin])];
  std::optional<Match> longest;
  for (std::size_t depth = 1; low != high; ++depth) {
    if (texts_[sorted_[low]].size() == depth) {
      longest = Match{begin, depth, sorted_[low]};
      while (low != high && texts_[sorted_[low]].size() == depth) ++low;
    }
    if (begin + depth >= text.size()) break;
    const auto next = static_cast<std::uint8_t>(text[begin + depth]);
    const auto byte_of = [&](std::uint32_t i) { return static_cast<std::uint8_t>(texts_[i][depth]); };
    const auto first = sorted_.begin();
    const auto from =
        std::lower_bound(first + static_cast<std::ptrdiff_t>(low), first + static_cast<std::ptrdiff_t>(high),
                         next, [&](std::uint32_t i, std::uint8_t c) { return byte_of(i) < c; });
    const auto to = std::upper_bound(from, first + static_cast<std::ptrdiff_t>(high), next,
                                     [&](std::uint8_t c, std::uint32_t i) { return c < byte_of(i); });
    low = static_cast<std::size_t>(from - first);
    high = static_cast<std::size_t>(to - first);
  }
  return longest;
}

std::optional<TextSet::Match> TextSet::find(std::string_view text, std::size_t from) const {
  if (texts_.empty()) return std::nullopt;
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    if (by_first_byte_[static_cast<std::uint8_t>(text[begin])].end == 0) continue;
    if (const auto match = longest_at(text, begin)) return match;
  }
  return std::nullopt;
}

std::optional<std::size_t> TextSet::index_of(std::string_view text) const {
  if (text.empty()) return std::nullopt;
  const auto match = longest_at(text, 0);
  if (!match || match->length != text.size()) return std::nullopt;
  return match->index;
}

}  // namespace firstlight
