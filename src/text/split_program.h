// The split patterns of tokenizers as a small program: alternatives of flat sequences of character classes
// with quantifiers. Nearly all published patterns have this form; it runs many times faster than a general
// regular expression, and its work is bounded by the length of the text.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/char_class.h"

namespace firstlight {

/// Accepted: classes and characters with ? * + {m} {m,n} {m,}, greedy or possessive; (?!c), (?=c) and $
/// without quantifier; groups (?:…) and (?i:…) of plain character sequences, with ? or without.
class SplitProgram {
 public:
  /// Nothing if the pattern does not have this form or can match the empty text: then it needs a SplitRegex.
  static std::optional<SplitProgram> compile(std::string_view pattern);

  struct Match {
    std::size_t begin;
    std::size_t end;
  };

  /// One text after the other. The total work is bounded by a multiple of the length of the texts.
  class Matcher {
   public:
    explicit Matcher(const SplitProgram& program)
        : program_(&program), hopeless_(program.alternatives_.size(), 0) {}
    /// The leftmost match that begins at `from` or later; alternatives in order, the first that matches wins.
    /// `text` must be valid UTF-8 and `from` the start of a character: 0 at first, then never less than
    /// before as long as the text is the same.
    Result<std::optional<Match>> find(std::string_view text, std::size_t from);

   private:
    friend class SplitProgram;
    /// The end of the alternative's match at `begin`, npos if it has none.
    std::size_t run(std::uint32_t alternative, std::string_view text, std::size_t begin);
    std::size_t rest(std::uint32_t item, std::string_view text, std::size_t position);
    std::size_t repeat(std::uint32_t item, std::string_view text, std::size_t position);

    const SplitProgram* program_;
    /// By alternative: before this it matches nowhere. One that begins with an unlimited run and failed at
    /// the run's start fails everywhere in the run, for the same ends were tried.
    std::vector<std::size_t> hopeless_;
    std::size_t work_ = 0;   // characters looked at
    std::size_t limit_ = 0;  // of work_
    std::size_t bytes_ = 0;  // of text that is done
  };

 private:
  enum class Kind : std::uint8_t { kClass, kGroup, kAhead, kNotAhead, kLineEnd, kAccept };
  struct Item {
    Kind kind = Kind::kAccept;
    bool possessive = false;
    std::uint32_t index = 0;  // of the class, or of the group
    std::uint32_t least = 1;
    std::uint32_t most = 1;
  };
  /// Each member is a sequence of classes, one character each.
  struct Group {
    std::vector<std::vector<std::uint32_t>> members;
  };
  friend class SplitProgramCompiler;
  void make_starts();
  [[nodiscard]] bool can_start(std::uint32_t alternative, char32_t c) const;

  std::vector<CharSet> classes_;
  std::vector<Group> groups_;
  std::vector<Item> items_;                  // each alternative ends in kAccept
  std::vector<std::uint32_t> alternatives_;  // index of the first item
  std::array<std::uint32_t, 128> starts_{};  // by ASCII character: a bit for each alternative it may begin
};

}  // namespace firstlight
