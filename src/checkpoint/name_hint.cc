#include "checkpoint/name_hint.h"

#include <algorithm>
#include <cctype>
#include <vector>

namespace firstlight {

namespace {

// Spelling variants of one tensor ("e_score_correction_bias", "e_score_bias") differ by more than a typo; a
// quarter of a short name would match anything.
constexpr std::size_t kMaxDistance = 6;

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// Do the runs of digits in both names read the same?
bool same_numbers(std::string_view a, std::string_view b) {
  std::size_t i = 0;
  std::size_t j = 0;
  while (true) {
    while (i < a.size() && !is_digit(a[i])) ++i;
    while (j < b.size() && !is_digit(b[j])) ++j;
    if (i == a.size() || j == b.size()) return i == a.size() && j == b.size();
    while (i < a.size() && j < b.size() && is_digit(a[i]) && is_digit(b[j])) {
      if (a[i++] != b[j++]) return false;
    }
    if ((i < a.size() && is_digit(a[i])) || (j < b.size() && is_digit(b[j]))) return false;
  }
}

bool is_dotted_suffix(std::string_view suffix, std::string_view name) {
  return name.size() > suffix.size() && name.ends_with(suffix) &&
         name[name.size() - suffix.size() - 1] == '.';
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b, std::size_t limit) {
  if (a.size() > b.size()) std::swap(a, b);
  if (b.size() - a.size() > limit) return limit + 1;
  // previous[i]: distance of a[0, i) and b[0, j), one row of the usual table.
  std::vector<std::size_t> previous(a.size() + 1);
  std::vector<std::size_t> current(a.size() + 1);
  for (std::size_t i = 0; i <= a.size(); ++i) previous[i] = i;
  for (std::size_t j = 1; j <= b.size(); ++j) {
    current[0] = j;
    std::size_t best = current[0];
    for (std::size_t i = 1; i <= a.size(); ++i) {
      const std::size_t replaced = previous[i - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      current[i] = std::min({replaced, previous[i] + 1, current[i - 1] + 1});
      best = std::min(best, current[i]);
    }
    if (best > limit) return limit + 1;
    std::swap(previous, current);
  }
  return std::min(previous[a.size()], limit + 1);
}

std::string_view nearest_name(std::string_view name, std::span<const std::string_view> candidates) {
  std::string_view best;
  std::size_t limit = std::min(kMaxDistance, name.size() / 4);
  for (const std::string_view candidate : candidates) {
    if (!same_numbers(name, candidate)) continue;
    if (is_dotted_suffix(name, candidate) || is_dotted_suffix(candidate, name)) return candidate;
    const std::size_t distance = edit_distance(name, candidate, limit);
    if (distance > limit) continue;
    best = candidate;
    if (distance == 0) break;
    limit = distance - 1;
  }
  return best;
}

}  // namespace firstlight
