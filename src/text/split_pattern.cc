#include "text/split_pattern.h"

#include <utility>

namespace firstlight {
namespace {

using Kinds = std::variant<const std::string*, SplitProgram::Matcher, SplitRegex::Matcher>;

Kinds matcher_of(const std::variant<std::string, SplitProgram, SplitRegex>& kind) {
  if (const auto* program = std::get_if<SplitProgram>(&kind)) return SplitProgram::Matcher(*program);
  if (const auto* regex = std::get_if<SplitRegex>(&kind)) return SplitRegex::Matcher(*regex);
  return &std::get<std::string>(kind);
}

}  // namespace

SplitPattern SplitPattern::literal(std::string text) { return SplitPattern(Kind(std::move(text))); }

Result<SplitPattern> SplitPattern::regex(std::string_view pattern) {
  if (auto program = SplitProgram::compile(pattern)) return SplitPattern(Kind(std::move(*program)));
  FL_ASSIGN(SplitRegex compiled, SplitRegex::compile(pattern));
  return SplitPattern(Kind(std::move(compiled)));
}

SplitPattern::Matcher::Matcher(const SplitPattern& pattern) : kind_(matcher_of(pattern.kind_)) {}

Result<std::optional<SplitPattern::Match>> SplitPattern::Matcher::find(std::string_view text,
                                                                       std::size_t from) {
  if (auto* program = std::get_if<SplitProgram::Matcher>(&kind_)) return program->find(text, from);
  if (auto* regex = std::get_if<SplitRegex::Matcher>(&kind_)) return regex->find(text, from);
  const std::string& literal = *std::get<const std::string*>(kind_);
  const std::size_t begin = literal.empty() ? std::string_view::npos : text.find(literal, from);
  if (begin == std::string_view::npos) return std::optional<Match>();
  return std::optional(Match{begin, begin + literal.size()});
}

}  // namespace firstlight
