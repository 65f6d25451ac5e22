// A set of characters as patterns write it: [...], \s, \p{L}. Read from the dialect of tokenizer files
// (Oniguruma, fancy-regex), asked for single characters, and written in PCRE2's dialect.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/unicode.h"

namespace firstlight {

class CharClass {
 public:
  /// Reads "[...]" from the front of `rest`, which moves past it. Classes may be nested ("[a[bc]]"), and one
  /// may be taken away: "[A&&[^B]]". With `fold` both cases of each letter are meant.
  static Result<CharClass> parse_bracket(std::string_view& rest, bool fold = false);

  /// Reads "\s", "\p{Lu}", "\n", "\x{41}", "\\" … from the front of `rest`: the characters it stands for. An
  /// escape that stands for something else (\b) or that the dialects disagree on (\h) is an error.
  static Result<CharClass> parse_escape(std::string_view& rest, bool fold = false);

  static CharClass of(char32_t c, bool fold = false);

  [[nodiscard]] bool contains(char32_t c) const;

  /// Whether contains() can tell: false with the scripts that only PCRE2 knows.
  [[nodiscard]] bool is_known() const;

  /// As an atom of a PCRE2 pattern (UTF and UCP). Its \s also holds U+180E, its \p{Han} means script
  /// extensions (、。 …), and 10.42 compiles && and matches wrongly: none of the three is used.
  [[nodiscard]] Result<std::string> to_pcre2() const;

 private:
  struct Range {
    char32_t first;
    char32_t last;
  };
  static Result<CharClass> parse_nested(std::string_view& rest, bool fold, int depth);
  Status add_members(std::string_view& rest, bool fold, int depth);
  Status add_member(std::string_view& rest, bool fold, int depth);
  void merge(CharClass&& other);
  void add_range(char32_t first, char32_t last, bool fold);
  [[nodiscard]] Result<std::string> members() const;
  [[nodiscard]] bool is_single_character() const;

  std::vector<Range> ranges_;
  CategorySet categories_ = 0;
  bool white_ = false;  // \s
  bool not_white_ = false;
  bool word_ = false;  // \w
  bool not_word_ = false;
  bool han_ = false;
  bool not_han_ = false;
  std::vector<std::string> scripts_;  // "\p{sc:Thai}"
  std::vector<CharClass> nested_;     // negated classes inside
  bool negated_ = false;
  std::vector<CharClass> without_;  // what && takes away: none or one
};

/// The same set made fast to ask.
class CharSet {
 public:
  explicit CharSet(CharClass from);

  [[nodiscard]] bool contains(char32_t c) const {
    if (c < 0x10000) return ((plane_[c >> 6] >> (c & 63)) & 1) != 0;
    return class_.contains(c);
  }

  /// The end of the run of members that begins at `position` of valid UTF-8, at most `most` characters;
  /// `count` is their number.
  std::size_t run_end(std::string_view text, std::size_t position, std::size_t most,
                      std::size_t& count) const;

 private:
  CharClass class_;
  std::array<std::uint8_t, 128> ascii_{};    // 1: member
  std::array<std::uint64_t, 1024> plane_{};  // a bit for each character up to U+FFFF
};

}  // namespace firstlight
