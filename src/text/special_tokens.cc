#include "text/special_tokens.h"

#include <algorithm>
#include <utility>

#include "base/json_limits.h"

namespace firstlight {

Result<SpecialTokens> SpecialTokens::build(std::int32_t first_id, std::vector<std::string> contents) {
  SpecialTokens s;
  s.first_id_ = first_id;
  s.contents_ = std::move(contents);
  for (std::int32_t i = 0; i < s.size(); ++i) s.sorted_.push_back(first_id + i);
  std::sort(s.sorted_.begin(), s.sorted_.end(), [&](std::int32_t a, std::int32_t b) {
    return std::pair(s.content(a), a) < std::pair(s.content(b), b);
  });
  for (std::size_t i = 0; i < s.sorted_.size(); ++i) {
    const std::string_view content = s.content(s.sorted_[i]);
    if (i != 0 && s.content(s.sorted_[i - 1]) == content) {
      return Error{"ids " + std::to_string(s.sorted_[i - 1]) + " and " + std::to_string(s.sorted_[i]) +
                   " are both " + quote_text(content)};
    }
    Range& range = s.by_first_byte_[static_cast<std::uint8_t>(content[0])];
    if (range.end == 0) range.begin = i;
    range.end = i + 1;
  }
  return s;
}

std::optional<SpecialTokens::Match> SpecialTokens::longest_at(std::string_view text,
                                                              std::size_t begin) const {
  // [low, high) of sorted_ shares its first `depth` bytes with the text; the shortest text comes first.
  auto [low, high] = by_first_byte_[static_cast<std::uint8_t>(text[begin])];
  std::optional<Match> longest;
  for (std::size_t depth = 1; low != high; ++depth) {
    if (content(sorted_[low]).size() == depth) {
      longest = Match{begin, depth, sorted_[low]};
      ++low;
    }
    if (begin + depth >= text.size()) break;
    const char next = text[begin + depth];
    const auto before = [&](std::int32_t id, char c) {
      return static_cast<std::uint8_t>(content(id)[depth]) < static_cast<std::uint8_t>(c);
    };
    const auto after = [&](char c, std::int32_t id) {
      return static_cast<std::uint8_t>(c) < static_cast<std::uint8_t>(content(id)[depth]);
    };
    const auto first = sorted_.begin();
    const auto from = first + static_cast<std::ptrdiff_t>(low);
    const auto to = first + static_cast<std::ptrdiff_t>(high);
    low = static_cast<std::size_t>(std::lower_bound(from, to, next, before) - first);
    high = static_cast<std::size_t>(std::upper_bound(from, to, next, after) - first);
  }
  return longest;
}

std::optional<SpecialTokens::Match> SpecialTokens::find(std::string_view text, std::size_t from) const {
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    const Range candidates = by_first_byte_[static_cast<std::uint8_t>(text[begin])];
    if (candidates.end == 0) continue;
    if (const auto match = longest_at(text, begin)) return match;
  }
  return std::nullopt;
}

std::optional<std::int32_t> SpecialTokens::id(std::string_view content) const {
  if (content.empty()) return std::nullopt;
  const auto match = longest_at(content, 0);
  if (!match || match->length != content.size()) return std::nullopt;
  return match->id;
}

}  // namespace firstlight
