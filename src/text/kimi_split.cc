#include "text/kimi_split.h"

#include <cstdint>

#include "text/utf8.h"

namespace firstlight {
namespace {

constexpr std::size_t kChunkCharacters = 400'000;  // both limits: the first-party tokenizer's constants
constexpr std::size_t kRunCharacters = 25'000;

// Python's str.isspace(): White_Space and the four information separators.
bool is_python_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

// The classes of an ASCII byte in the pattern; kOther is [^\s\p{L}\p{N}].
enum class Ascii : std::uint8_t { kUpper, kLower, kDigit, kNewline, kSpace, kOther, kNotAscii };

Ascii ascii_class(char c) {
  if (c >= 'a' && c <= 'z') return Ascii::kLower;
  if (c >= 'A' && c <= 'Z') return Ascii::kUpper;
  if (c >= '0' && c <= '9') return Ascii::kDigit;
  if (c == '\r' || c == '\n') return Ascii::kNewline;
  if (c == ' ' || c == '\t' || c == '\v' || c == '\f') return Ascii::kSpace;
  return static_cast<unsigned char>(c) < 0x80 ? Ascii::kOther : Ascii::kNotAscii;
}

/// The end of the piece at `position` where ASCII alone decides it, else 0. Cases it leaves to the
/// pattern: any neighbour that is not ASCII, white space before white space, and an apostrophe after a
/// word (a contraction may follow).
std::size_t ascii_piece_end(std::string_view text, std::size_t position) {
  const auto at = [text](std::size_t i) { return ascii_class(text[i]); };
  const auto run_end = [&](std::size_t i, Ascii kind) {
    while (i < text.size() && at(i) == kind) ++i;
    return i;
  };
  const auto decided = [&](std::size_t end) {  // no later character can belong to the piece
    return end == text.size() || at(end) != Ascii::kNotAscii;
  };

  const Ascii first = at(position);
  if (first == Ascii::kDigit) {
    std::size_t end = position;
    while (end < text.size() && end - position < 3 && at(end) == Ascii::kDigit) ++end;
    return end - position == 3 || decided(end) ? end : 0;
  }
  const bool has_prefix = first == Ascii::kOther || first == Ascii::kSpace;
  const std::size_t start = has_prefix ? position + 1 : position;
  if (start == text.size()) return 0;
  const Ascii second = at(start);
  if (second == Ascii::kUpper || second == Ascii::kLower) {
    const std::size_t end = run_end(run_end(start, Ascii::kUpper), Ascii::kLower);
    return decided(end) && (end == text.size() || text[end] != '\'') ? end : 0;
  }
  if (first == Ascii::kOther || (text[position] == ' ' && second == Ascii::kOther)) {
    const std::size_t end = run_end(start, Ascii::kOther);
    if (!decided(end)) return 0;
    std::size_t after = end;
    while (after < text.size() && at(after) == Ascii::kNewline) ++after;
    return after;
  }
  return 0;
}

}  // namespace

std::string_view kimi_split_pattern() {
  return R"([\p{Han}]+)"
         R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)"
         R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
         R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)"
         R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
         R"(|\p{N}{1,3})"
         R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)"
         R"(|\s*[\r\n]+)"
         R"(|\s+(?!\S))"
         R"(|\s+)";
}

std::vector<std::string_view> kimi_precut(std::string_view text) {
  if (text.size() <= kRunCharacters) return {text};  // a character has at least one byte
  std::vector<std::string_view> cuts;
  std::size_t begin = 0;  // of the current cut
  std::size_t chunk = 0;  // characters since the chunk began
  std::size_t run = 0;    // characters since the run began, or since it was last cut
  bool run_is_space = false;
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Unit unit = utf8_unit(text.substr(i));
    const bool valid = unit.kind == Utf8Kind::kCharacter;
    const bool space = valid && is_python_space(utf8_code_point(text.substr(i, unit.length)));
    bool cut = false;
    if (chunk == kChunkCharacters) {
      cut = true;
      chunk = 0;
      run = 0;
    } else if (space != run_is_space) {
      run = 0;
    } else if (run == kRunCharacters) {
      cut = true;
      run = 0;
    }
    if (cut) {
      cuts.push_back(text.substr(begin, i - begin));
      begin = i;
    }
    run_is_space = space;
    ++run;
    ++chunk;
    i += valid ? unit.length : 1;
  }
  cuts.push_back(text.substr(begin));
  return cuts;
}

Result<std::size_t> KimiSplitter::piece(std::string_view text, std::size_t position) {
  const std::size_t end = ascii_piece_end(text, position);
  if (end != 0) return end - position;
  return matcher_.match(text, position);
}

}  // namespace firstlight
