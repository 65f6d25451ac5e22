// The regular expression that cuts text into the pieces BPE works on. Tokenizers write it in the dialect
// of Rust's fancy-regex; PCRE2 accepts the same text with other meanings, so it is rewritten first.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace firstlight {

/// The pattern in PCRE2's dialect (with UTF and UCP set), or why it cannot be said there:
///   [A&&[^B]]        (?:(?![B])[A])       PCRE2 10.42 compiles && and matches wrongly; no other && passes
///   \s \S            \p{White_Space} …    PCRE2's \s also holds U+180E
///   \p{Han}          \p{sc:Han}           PCRE2's bare script names mean script *extensions* (、。 …)
/// Property names other than general categories and the scripts listed in the .cc are refused.
Result<std::string> to_pcre2(std::string_view pattern);

class SplitRegex {
 public:
  /// `pattern` in the tokenizers' dialect.
  static Result<SplitRegex> compile(std::string_view pattern);

  /// The working memory of one thread; cheap to keep, not shareable.
  class Matcher {
   public:
    explicit Matcher(const SplitRegex& regex);
    /// The length of the match that begins exactly at `position` of `text`, which must be valid UTF-8.
    /// An error if none begins there, if it is empty, or if the pattern exceeds PCRE2's limits.
    Result<std::size_t> match(std::string_view text, std::size_t position);

   private:
    struct FreeData {
      void operator()(void* data) const;
    };
    const SplitRegex* regex_;
    std::unique_ptr<void, FreeData> data_;  // pcre2_match_data
  };

 private:
  struct FreeCode {
    void operator()(void* code) const;
  };
  SplitRegex() = default;
  std::unique_ptr<void, FreeCode> code_;  // pcre2_code: pcre2.h stays out of this header
};

}  // namespace firstlight
