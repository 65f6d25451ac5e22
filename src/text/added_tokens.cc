#include "text/added_tokens.h"

#include <string>
#include <utility>

#include "base/json_limits.h"
#include "text/utf8.h"

namespace firstlight {
namespace {

/// The character at `position`, 0 at the end and for bytes that are none.
char32_t character_at(std::string_view text, std::size_t position) {
  if (position == text.size()) return 0;
  const Utf8Unit unit = utf8_unit(text.substr(position));
  return unit.kind == Utf8Kind::kCharacter ? utf8_code_point(text.substr(position, unit.length)) : 0;
}

/// The start of the character before `position`; `c` is 0 where there is none.
std::size_t character_before(std::string_view text, std::size_t position, char32_t& c) {
  c = 0;
  if (position == 0) return 0;
  const std::size_t start = previous_start(text, position);
  c = character_at(text, start);
  return start;
}

}  // namespace

Result<AddedTokens> AddedTokens::create(std::vector<AddedToken> tokens, const Normalizer& normalizer) {
  AddedTokens result;
  result.tokens_ = std::move(tokens);
  std::vector<std::string> raw;
  std::vector<std::string> normalized;
  for (std::uint32_t i = 0; i < result.tokens_.size(); ++i) {
    const AddedToken& token = result.tokens_[i];
    if (!token.normalized) {
      raw.push_back(token.content);
      result.raw_owners_.push_back(i);
      continue;
    }
    std::string content = token.content;
    if (const Status status = normalizer.apply(content); !status) {
      return Error{"the added token " + quote_text(token.content, 80) + ": " + status.error().message};
    }
    if (content.empty()) continue;  // nothing in a text can be it
    normalized.push_back(std::move(content));
    result.normalized_owners_.push_back(i);
  }
  result.raw_ = TextSet(std::move(raw));
  result.normalized_ = TextSet(std::move(normalized));
  return result;
}

bool AddedTokens::widen(const AddedToken& token, std::string_view text, std::size_t done, std::size_t& begin,
                        std::size_t& end) {
  char32_t c = 0;
  if (token.single_word) {
    character_before(text, begin, c);
    if ((c != 0 && is_word_character(c)) || is_word_character(character_at(text, end))) return false;
  }
  if (token.lstrip) {
    while (begin > done) {
      const std::size_t start = character_before(text, begin, c);
      if (start < done || !is_white_space(c)) break;
      begin = start;
    }
  }
  if (token.rstrip) {
    while (is_white_space(character_at(text, end))) {
      std::size_t next = end;
      next_code_point(text, next);
      end = next;
    }
  }
  return true;
}

}  // namespace firstlight
