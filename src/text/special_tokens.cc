#include "text/special_tokens.h"

#include <utility>

#include "base/json_limits.h"

namespace firstlight {

Result<SpecialTokens> SpecialTokens::build(std::int32_t first_id, std::vector<std::string> contents) {
  SpecialTokens s;
  s.first_id_ = first_id;
  s.contents_ = TextSet(std::move(contents));
  if (const auto twice = s.contents_.duplicate()) {
    const auto id = [&](std::size_t index) {
      return std::to_string(first_id + static_cast<std::int32_t>(index));
    };
    return Error{"ids " + id(twice->first) + " and " + id(twice->second) + " are both " +
                 quote_text(s.contents_[twice->first])};
  }
  return s;
}

std::optional<SpecialTokens::Match> SpecialTokens::find(std::string_view text, std::size_t from) const {
  const auto match = contents_.find(text, from);
  if (!match) return std::nullopt;
  return Match{match->begin, match->length, first_id_ + static_cast<std::int32_t>(match->index)};
}

std::optional<std::int32_t> SpecialTokens::id(std::string_view content) const {
  const auto index = contents_.index_of(content);
  if (!index) return std::nullopt;
  return first_id_ + static_cast<std::int32_t>(*index);
}

}  // namespace firstlight
