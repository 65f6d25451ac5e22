#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

namespace firstlight {
namespace {

constexpr CategorySet bit(int category) { return CategorySet{1} << category; }

struct Named {
  std::string_view name;
  CategorySet set;
};

constexpr CategorySet kCased =
    bit(UTF8PROC_CATEGORY_LU) | bit(UTF8PROC_CATEGORY_LL) | bit(UTF8PROC_CATEGORY_LT);
constexpr CategorySet kLetters = kCased | bit(UTF8PROC_CATEGORY_LM) | bit(UTF8PROC_CATEGORY_LO);
constexpr CategorySet kMarks =
    bit(UTF8PROC_CATEGORY_MN) | bit(UTF8PROC_CATEGORY_MC) | bit(UTF8PROC_CATEGORY_ME);
constexpr CategorySet kNumbers =
    bit(UTF8PROC_CATEGORY_ND) | bit(UTF8PROC_CATEGORY_NL) | bit(UTF8PROC_CATEGORY_NO);

constexpr std::array kNames = {
    Named{"L", kLetters},
    Named{"LC", kCased},
    Named{"L&", kCased},
    Named{"M", kMarks},
    Named{"N", kNumbers},
    Named{"P", bit(UTF8PROC_CATEGORY_PC) | bit(UTF8PROC_CATEGORY_PD) | bit(UTF8PROC_CATEGORY_PS) |
                   bit(UTF8PROC_CATEGORY_PE) | bit(UTF8PROC_CATEGORY_PI) | bit(UTF8PROC_CATEGORY_PF) |
                   bit(UTF8PROC_CATEGORY_PO)},
    Named{"S", bit(UTF8PROC_CATEGORY_SM) | bit(UTF8PROC_CATEGORY_SC) | bit(UTF8PROC_CATEGORY_SK) |
                   bit(UTF8PROC_CATEGORY_SO)},
    Named{"Z", bit(UTF8PROC_CATEGORY_ZS) | bit(UTF8PROC_CATEGORY_ZL) | bit(UTF8PROC_CATEGORY_ZP)},
    Named{"C", bit(UTF8PROC_CATEGORY_CC) | bit(UTF8PROC_CATEGORY_CF) | bit(UTF8PROC_CATEGORY_CS) |
                   bit(UTF8PROC_CATEGORY_CO) | bit(UTF8PROC_CATEGORY_CN)},
    Named{"Lu", bit(UTF8PROC_CATEGORY_LU)},
    Named{"Ll", bit(UTF8PROC_CATEGORY_LL)},
    Named{"Lt", bit(UTF8PROC_CATEGORY_LT)},
    Named{"Lm", bit(UTF8PROC_CATEGORY_LM)},
    Named{"Lo", bit(UTF8PROC_CATEGORY_LO)},
    Named{"Mn", bit(UTF8PROC_CATEGORY_MN)},
    Named{"Mc", bit(UTF8PROC_CATEGORY_MC)},
    Named{"Me", bit(UTF8PROC_CATEGORY_ME)},
    Named{"Nd", bit(UTF8PROC_CATEGORY_ND)},
    Named{"Nl", bit(UTF8PROC_CATEGORY_NL)},
    Named{"No", bit(UTF8PROC_CATEGORY_NO)},
    Named{"Pc", bit(UTF8PROC_CATEGORY_PC)},
    Named{"Pd", bit(UTF8PROC_CATEGORY_PD)},
    Named{"Ps", bit(UTF8PROC_CATEGORY_PS)},
    Named{"Pe", bit(UTF8PROC_CATEGORY_PE)},
    Named{"Pi", bit(UTF8PROC_CATEGORY_PI)},
    Named{"Pf", bit(UTF8PROC_CATEGORY_PF)},
    Named{"Po", bit(UTF8PROC_CATEGORY_PO)},
    Named{"Sm", bit(UTF8PROC_CATEGORY_SM)},
    Named{"Sc", bit(UTF8PROC_CATEGORY_SC)},
    Named{"Sk", bit(UTF8PROC_CATEGORY_SK)},
    Named{"So", bit(UTF8PROC_CATEGORY_SO)},
    Named{"Zs", bit(UTF8PROC_CATEGORY_ZS)},
    Named{"Zl", bit(UTF8PROC_CATEGORY_ZL)},
    Named{"Zp", bit(UTF8PROC_CATEGORY_ZP)},
    Named{"Cc", bit(UTF8PROC_CATEGORY_CC)},
    Named{"Cf", bit(UTF8PROC_CATEGORY_CF)},
    Named{"Cs", bit(UTF8PROC_CATEGORY_CS)},
    Named{"Co", bit(UTF8PROC_CATEGORY_CO)},
    Named{"Cn", bit(UTF8PROC_CATEGORY_CN)},
};

// Characters with the property Alphabetic that are no letters, marks or letter numbers: circled and squared
// Latin letters. Together with those categories they are what \w adds to digits and connectors.
bool is_letter_symbol(char32_t c) {
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
         (c >= 0x1F170 && c <= 0x1F189);
}

struct Range {
  char32_t first;
  char32_t last;
};

// Scripts.txt of Unicode 15.1, adjacent ranges joined.
constexpr std::array kHan = {
    Range{0x2E80, 0x2E99},   Range{0x2E9B, 0x2EF3},   Range{0x2F00, 0x2FD5},   Range{0x3005, 0x3005},
    Range{0x3007, 0x3007},   Range{0x3021, 0x3029},   Range{0x3038, 0x303B},   Range{0x3400, 0x4DBF},
    Range{0x4E00, 0x9FFF},   Range{0xF900, 0xFA6D},   Range{0xFA70, 0xFAD9},   Range{0x16FE2, 0x16FE3},
    Range{0x16FF0, 0x16FF1}, Range{0x20000, 0x2A6DF}, Range{0x2A700, 0x2B739}, Range{0x2B740, 0x2B81D},
    Range{0x2B820, 0x2CEA1}, Range{0x2CEB0, 0x2EBE0}, Range{0x2EBF0, 0x2EE5D}, Range{0x2F800, 0x2FA1D},
    Range{0x30000, 0x3134A}, Range{0x31350, 0x323AF},
};

}  // namespace

CategorySet category_of(char32_t c) { return bit(utf8proc_category(static_cast<utf8proc_int32_t>(c))); }

CategorySet category_set(std::string_view name) {
  const auto found =
      std::find_if(kNames.begin(), kNames.end(), [name](const Named& n) { return n.name == name; });
  return found == kNames.end() ? 0 : found->set;
}

bool is_han(char32_t c) {
  if (c < kHan.front().first) return false;
  const auto after =
      std::upper_bound(kHan.begin(), kHan.end(), c, [](char32_t v, const Range& r) { return v < r.first; });
  return after != kHan.begin() && c <= (after - 1)->last;
}

bool is_word_character(char32_t c) {
  constexpr CategorySet kWord =
      kLetters | kMarks | bit(UTF8PROC_CATEGORY_ND) | bit(UTF8PROC_CATEGORY_NL) | bit(UTF8PROC_CATEGORY_PC);
  return (category_of(c) & kWord) != 0 || is_letter_symbol(c) || c == 0x200C || c == 0x200D;
}

char32_t next_code_point(std::string_view text, std::size_t& position) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[position + i]); };
  const char32_t lead = byte(0);
  if (lead < 0x80) {
    ++position;
    return lead;
  }
  char32_t c = 0;
  if (lead < 0xE0) {
    c = ((lead & 0x1FU) << 6) | (byte(1) & 0x3FU);
    position += 2;
  } else if (lead < 0xF0) {
    c = ((lead & 0x0FU) << 12) | ((byte(1) & 0x3FU) << 6) | (byte(2) & 0x3FU);
    position += 3;
  } else {
    c = ((lead & 0x07U) << 18) | ((byte(1) & 0x3FU) << 12) | ((byte(2) & 0x3FU) << 6) | (byte(3) & 0x3FU);
    position += 4;
  }
  return c;
}

std::size_t previous_start(std::string_view text, std::size_t end) {
  std::size_t start = end - 1;
  while (start > 0 && (static_cast<std::uint8_t>(text[start]) & 0xC0U) == 0x80U) --start;
  return start;
}

void append_utf8(char32_t c, std::string& out) {
  const auto add = [&](char32_t b) { out += static_cast<char>(static_cast<std::uint8_t>(b)); };
  if (c < 0x80) {
    add(c);
  } else if (c < 0x800) {
    add(0xC0U | (c >> 6));
    add(0x80U | (c & 0x3FU));
  } else if (c < 0x10000) {
    add(0xE0U | (c >> 12));
    add(0x80U | ((c >> 6) & 0x3FU));
    add(0x80U | (c & 0x3FU));
  } else {
    add(0xF0U | (c >> 18));
    add(0x80U | ((c >> 12) & 0x3FU));
    add(0x80U | ((c >> 6) & 0x3FU));
    add(0x80U | (c & 0x3FU));
  }
}

}  // namespace firstlight
