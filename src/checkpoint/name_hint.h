// "did you mean": the unread tensor whose name is closest to a missing one.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace firstlight {

/// The candidate that is `name` with another prefix or without one, or else differs from it by a few letters;
/// empty if none does. Names with different numbers in them never match: layer 10 is no typing mistake for
/// layer 11.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> candidates);

/// Insertions, deletions and replacements that turn `a` into `b`; limit + 1 if there are more than `limit`.
std::size_t edit_distance(std::string_view a, std::string_view b, std::size_t limit);

}  // namespace firstlight
