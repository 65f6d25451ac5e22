#include "text/char_class.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <utility>

#include "base/json_limits.h"

namespace firstlight {
namespace {

constexpr std::array<std::string_view, 8> kScripts = {"Han",   "Hiragana", "Katakana", "Hangul",
                                                      "Latin", "Cyrillic", "Thai",     "Arabic"};
constexpr int kMaxNesting = 8;
constexpr CategorySet kAllCategories = ~CategorySet{0};

std::string hex_escape(char32_t c) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "\\x{%X}", static_cast<unsigned>(c));
  return text.data();
}

/// "41" of "\x41" or "{1F600}": hexadecimal digits in braces or exactly `digits` of them.
Result<char32_t> hex_code(std::string_view& rest, std::size_t digits) {
  std::string_view code = rest.substr(0, digits);
  std::size_t length = digits;
  if (rest.starts_with('{')) {
    const std::size_t close = rest.find('}');
    if (close == std::string_view::npos) return Error{"unclosed { after \\x"};
    code = rest.substr(1, close - 1);
    length = close + 1;
  }
  std::uint32_t value = 0;
  const auto parsed = std::from_chars(code.data(), code.data() + code.size(), value, 16);
  if (code.empty() || code.size() > 6 || parsed.ec != std::errc{} ||
      parsed.ptr != code.data() + code.size() || (!rest.starts_with('{') && code.size() != digits) ||
      value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
    return Error{"\\x or \\u without a character's code"};
  }
  rest.remove_prefix(length);
  return value;
}

/// The one character that a letter after a backslash stands for, 0 if none.
char32_t control_character(char letter) {
  switch (letter) {
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    case 'a':
      return '\a';
    case 'e':
      return 0x1B;
    default:
      return 0;
  }
}

bool is_ascii_alphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

}  // namespace

CharClass CharClass::of(char32_t c, bool fold) {
  CharClass one;
  one.add_range(c, c, fold);
  return one;
}

void CharClass::add_range(char32_t first, char32_t last, bool fold) {
  ranges_.push_back({first, last});
  if (!fold) return;
  // Only ASCII letters are folded; two of them have a third form outside ASCII.
  for (char32_t c = first; c <= last && c < 0x80; ++c) {
    if (!is_ascii_alphanumeric(static_cast<char>(c)) || (c >= '0' && c <= '9')) continue;
    ranges_.push_back({c ^ 0x20U, c ^ 0x20U});
    if ((c | 0x20U) == 's') ranges_.push_back({0x17F, 0x17F});
    if ((c | 0x20U) == 'k') ranges_.push_back({0x212A, 0x212A});
  }
}

Result<CharClass> CharClass::parse_escape(std::string_view& rest, bool fold) {
  if (rest.size() < 2) return Error{"the pattern ends in a backslash"};
  CharClass result;
  const char letter = rest[1];
  rest.remove_prefix(2);
  switch (letter) {
    case 's':
      result.white_ = true;
      return result;
    case 'S':
      result.not_white_ = true;
      return result;
    case 'd':
      result.categories_ = category_set("Nd");
      return result;
    case 'D':
      result.categories_ = kAllCategories ^ category_set("Nd");
      return result;
    case 'w':
      result.word_ = true;
      return result;
    case 'W':
      result.not_word_ = true;
      return result;
    case 'x':
    case 'u': {
      FL_ASSIGN(const char32_t c, hex_code(rest, letter == 'x' ? 2 : 4));
      result.add_range(c, c, fold);
      return result;
    }
    case 'p':
    case 'P':
      break;
    default: {
      const char32_t control = control_character(letter);
      if (control != 0) return of(control);
      if (is_ascii_alphanumeric(letter)) {
        return Error{std::string("the escape \\") + letter + " is not supported"};
      }
      // Punctuation stands for itself; so does any other character, whose first byte was just taken.
      if (static_cast<std::uint8_t>(letter) < 0x80) return of(static_cast<char32_t>(letter));
      return Error{"a backslash before a character outside ASCII"};
    }
  }
  std::string_view name = rest.substr(0, 1);
  std::size_t length = 1;
  if (rest.starts_with('{')) {
    const std::size_t close = rest.find('}');
    if (close == std::string_view::npos) return Error{std::string("unclosed { after \\") + letter};
    name = rest.substr(1, close - 1);
    length = close + 1;
  }
  if (name.empty()) return Error{std::string("the pattern ends in \\") + letter};
  bool inverted = letter == 'P';
  if (name.starts_with('^')) {
    inverted = !inverted;
    name.remove_prefix(1);
  }
  rest.remove_prefix(length);
  if (const CategorySet set = category_set(name); set != 0) {
    result.categories_ = inverted ? kAllCategories ^ set : set;
    return result;
  }
  if (name.starts_with("sc=")) name.remove_prefix(3);
  if (name.starts_with("Script=")) name.remove_prefix(7);
  if (name == "Han") {
    (inverted ? result.not_han_ : result.han_) = true;
    return result;
  }
  if (std::find(kScripts.begin(), kScripts.end(), name) == kScripts.end()) {
    return Error{"unknown property \\p{" + quote_text(name, 40) + "}"};
  }
  result.scripts_.push_back(std::string(inverted ? "\\P" : "\\p") + "{sc:" + std::string(name) + "}");
  return result;
}

Result<CharClass> CharClass::parse_bracket(std::string_view& rest, bool fold) {
  return parse_nested(rest, fold, 0);
}

Result<CharClass> CharClass::parse_nested(std::string_view& rest, bool fold, int depth) {
  if (depth == kMaxNesting) return Error{"classes are nested too deeply"};
  CharClass result;
  rest.remove_prefix(1);
  if (rest.starts_with('^')) {
    result.negated_ = true;
    rest.remove_prefix(1);
  }
  if (rest.starts_with(']')) return Error{"an empty class []"};  // a literal ] to some, an error to others
  FL_TRY(result.add_members(rest, fold, depth));
  return result;
}

Status CharClass::add_members(std::string_view& rest, bool fold, int depth) {
  for (;;) {
    if (rest.empty()) return Error{"unclosed ["};
    if (rest.starts_with(']')) {
      rest.remove_prefix(1);
      return {};
    }
    if (!rest.starts_with("&&")) {
      FL_TRY(add_member(rest, fold, depth));
      continue;
    }
    rest.remove_prefix(2);
    if (negated_ || !rest.starts_with("[^"))
      return Error{"only the class intersection [A&&[^B]] is supported"};
    FL_ASSIGN(CharClass taken, parse_nested(rest, fold, depth + 1));
    taken.negated_ = false;
    without_.push_back(std::move(taken));
    if (!rest.starts_with(']')) return Error{"only the class intersection [A&&[^B]] is supported"};
  }
}

void CharClass::merge(CharClass&& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  categories_ |= other.categories_;
  white_ |= other.white_;
  not_white_ |= other.not_white_;
  word_ |= other.word_;
  not_word_ |= other.not_word_;
  han_ |= other.han_;
  not_han_ |= other.not_han_;
  scripts_.insert(scripts_.end(), other.scripts_.begin(), other.scripts_.end());
  for (CharClass& inner : other.nested_) nested_.push_back(std::move(inner));
}

Status CharClass::add_member(std::string_view& rest, bool fold, int depth) {
  if (rest.starts_with("[:")) return Error{"POSIX classes are not supported"};
  if (rest.starts_with('[')) {
    FL_ASSIGN(CharClass inner, parse_nested(rest, fold, depth + 1));
    if (inner.negated_ || !inner.without_.empty()) {
      nested_.push_back(std::move(inner));
    } else {
      merge(std::move(inner));
    }
    return {};
  }
  // One character, escaped or not; only such a one can begin a range.
  const auto atom = [&]() -> Result<CharClass> {
    if (rest.starts_with('\\')) return parse_escape(rest, false);
    std::size_t length = 0;
    const char32_t c = next_code_point(rest, length);
    rest.remove_prefix(length);
    return of(c);
  };
  FL_ASSIGN(CharClass first, atom());
  if (!first.is_single_character()) {
    merge(std::move(first));
    return {};
  }
  const char32_t low = first.ranges_[0].first;
  char32_t high = low;
  if (rest.starts_with('-') && rest.size() > 1 && rest[1] != ']' && rest[1] != '[' &&
      !rest.starts_with("-&&")) {
    rest.remove_prefix(1);
    FL_ASSIGN(const CharClass last, atom());
    if (!last.is_single_character()) return Error{"a range ends in a class"};
    high = last.ranges_[0].first;
    if (high < low) return Error{"a range's end is before its start"};
  }
  add_range(low, high, fold);
  return {};
}

bool CharClass::is_single_character() const {
  return ranges_.size() == 1 && ranges_[0].first == ranges_[0].last && categories_ == 0 && !white_ &&
         !not_white_ && !word_ && !not_word_ && !han_ && !not_han_ && scripts_.empty();
}

bool CharClass::contains(char32_t c) const {
  bool found = (categories_ != 0 && (category_of(c) & categories_) != 0) || (white_ && is_white_space(c)) ||
               (not_white_ && !is_white_space(c)) || (word_ && is_word_character(c)) ||
               (not_word_ && !is_word_character(c)) || (han_ && is_han(c)) || (not_han_ && !is_han(c)) ||
               std::any_of(ranges_.begin(), ranges_.end(),
                           [c](const Range& r) { return c >= r.first && c <= r.last; }) ||
               std::any_of(nested_.begin(), nested_.end(), [c](const CharClass& n) { return n.contains(c); });
  if (negated_) found = !found;
  return found && (without_.empty() || !without_[0].contains(c));
}

bool CharClass::is_known() const {
  const auto known = [](const CharClass& inner) { return inner.is_known(); };
  return scripts_.empty() && std::all_of(nested_.begin(), nested_.end(), known) &&
         std::all_of(without_.begin(), without_.end(), known);
}

Result<std::string> CharClass::members() const {
  if (!nested_.empty()) return Error{"a negated class inside a class is not supported here"};
  std::string out;
  for (const Range& r : ranges_) {
    out += hex_escape(r.first);
    if (r.last != r.first) out += "-" + hex_escape(r.last);
  }
  if (categories_ != 0) {
    // Every category by its own name; a complement is the same list from the other side.
    constexpr std::array<std::string_view, 30> names = {
        "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe",
        "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"};
    for (const std::string_view name : names) {
      if ((category_set(name) & categories_) != 0) out += "\\p{" + std::string(name) + "}";
    }
  }
  if (white_) out += "\\p{White_Space}";
  if (not_white_) out += "\\P{White_Space}";
  if (word_) {
    out +=
        "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}"
        "\\x{1F170}-\\x{1F189}\\x{200C}\\x{200D}";
  }
  if (not_word_) return Error{"\\W inside a class is not supported here"};
  if (han_) out += "\\p{sc:Han}";
  if (not_han_) out += "\\P{sc:Han}";
  for (const std::string& script : scripts_) out += script;
  return out;
}

Result<std::string> CharClass::to_pcre2() const {
  if (not_word_ && !negated_ && nested_.empty() && ranges_.empty() && categories_ == 0 && without_.empty()) {
    CharClass word;
    word.word_ = true;
    word.negated_ = true;
    return word.to_pcre2();
  }
  FL_ASSIGN(const std::string base, members());
  const std::string whole = (negated_ ? "[^" : "[") + base + "]";
  if (without_.empty()) return whole;
  FL_ASSIGN(const std::string taken, without_[0].members());
  return "(?:(?![" + taken + "])" + whole + ")";
}

CharSet::CharSet(CharClass from) : class_(std::move(from)) {
  for (char32_t c = 0; c < 0x10000; ++c) {
    if (class_.contains(c)) plane_[c >> 6] |= std::uint64_t{1} << (c & 63);
  }
  for (std::size_t c = 0; c < ascii_.size(); ++c) ascii_[c] = contains(static_cast<char32_t>(c)) ? 1 : 0;
}

std::size_t CharSet::run_end(std::string_view text, std::size_t position, std::size_t most,
                             std::size_t& count) const {
  count = 0;
  while (position < text.size() && count < most) {
    const auto byte = static_cast<std::uint8_t>(text[position]);
    if (byte < 0x80) {
      if (ascii_[byte] == 0) break;
      ++position;
    } else {
      std::size_t next = position;
      if (!contains(next_code_point(text, next))) break;
      position = next;
    }
    ++count;
  }
  return position;
}

}  // namespace firstlight
