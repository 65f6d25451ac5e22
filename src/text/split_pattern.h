// What a "Split" or "Replace" component of a tokenizer file searches for: a plain text, or a regular
// expression that runs as a SplitProgram where it can and as a SplitRegex where it must.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/result.h"
#include "text/split_program.h"
#include "text/split_regex.h"

namespace firstlight {

class SplitPattern {
 public:
  using Match = SplitProgram::Match;

  /// An empty literal matches nowhere.
  static SplitPattern literal(std::string text);
  static Result<SplitPattern> regex(std::string_view pattern);

  /// Whether it is neither a literal nor a SplitProgram.
  [[nodiscard]] bool is_general() const { return std::holds_alternative<SplitRegex>(kind_); }

  /// The working memory of one thread. The pattern must stay where it is.
  class Matcher {
   public:
    explicit Matcher(const SplitPattern& pattern);
    /// The leftmost match at `from` or later. `text` must be valid UTF-8, `from` the start of a character.
    Result<std::optional<Match>> find(std::string_view text, std::size_t from);

   private:
    std::variant<const std::string*, SplitProgram::Matcher, SplitRegex::Matcher> kind_;
  };

 private:
  using Kind = std::variant<std::string, SplitProgram, SplitRegex>;
  explicit SplitPattern(Kind kind) : kind_(std::move(kind)) {}
  Kind kind_;
};

/// Calls `each(begin, end, is_match)` for the matches and what lies between them, in order and without empty
/// stretches between; a match may be empty. `each` returns a Status.
template <class Each>
Status for_each_match(SplitPattern::Matcher& matcher, std::string_view text, const Each& each) {
  std::size_t done = 0;      // text before this has been given to `each`
  std::size_t from = 0;      // where the next search begins
  bool after_match = false;  // an empty match directly after a match is none
  while (from <= text.size()) {
    FL_ASSIGN(const auto found, matcher.find(text, from));
    if (!found) break;
    const bool empty = found->begin == found->end;
    if (!empty || !after_match || found->begin != done) {
      if (found->begin != done) FL_TRY(each(done, found->begin, false));
      FL_TRY(each(found->begin, found->end, true));
      done = found->end;
      after_match = true;
    }
    from = found->end;
    if (!empty) continue;
    if (from == text.size()) break;
    next_code_point(text, from);
  }
  if (done != text.size()) FL_TRY(each(done, text.size(), false));
  return {};
}

}  // namespace firstlight
