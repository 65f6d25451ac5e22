// Properties of characters, of the Unicode version that libutf8proc knows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace firstlight {

/// General categories as a set of bits: kCategory…(c) tests are one AND.
using CategorySet = std::uint32_t;

/// The category of a code point up to U+10FFFF as a set of one.
CategorySet category_of(char32_t c);

/// The set that "L", "Lu", "P" … name; 0 for any other name. "L&" and "LC" are the cased letters.
CategorySet category_set(std::string_view name);

inline bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

/// Script=Han (not its extensions).
bool is_han(char32_t c);

/// What \w matches: letters, marks, decimal digits, letter-like numbers and symbols, connector punctuation.
bool is_word_character(char32_t c);

/// The code point at `position` of valid UTF-8, which moves past it.
char32_t next_code_point(std::string_view text, std::size_t& position);

/// The start of the character that ends at `end` > 0 of valid UTF-8.
std::size_t previous_start(std::string_view text, std::size_t end);

void append_utf8(char32_t c, std::string& out);

}  // namespace firstlight
