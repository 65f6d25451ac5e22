#include "text/kimi_split.h"

#include <cstddef>

#include "text/unicode.h"
#include "text/utf8.h"

namespace firstlight {
namespace {

constexpr std::size_t kChunkCharacters = 400'000;  // both limits: the first-party tokenizer's constants
constexpr std::size_t kRunCharacters = 25'000;

// Python's str.isspace(): White_Space and the four information separators.
bool is_python_space(char32_t c) { return (c >= 0x1C && c <= 0x1F) || is_white_space(c); }

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

}  // namespace firstlight
