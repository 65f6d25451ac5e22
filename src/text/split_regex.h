// Regular expressions that cut text into pieces, in their general form: PCRE2 behind the dialect that
// tokenizers write (Rust's fancy-regex, Oniguruma). split_program.h runs the common ones faster.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/split_program.h"

namespace firstlight {

/// The pattern in PCRE2's dialect (with UTF, UCP and MULTILINE set), or why it cannot be said there. Classes
/// and escapes are rewritten by CharClass; everything else is passed on.
Result<std::string> to_pcre2(std::string_view pattern);

class SplitRegex {
 public:
  /// `pattern` in the tokenizers' dialect.
  static Result<SplitRegex> compile(std::string_view pattern);

  /// The working memory of one thread; cheap to keep, not shareable.
  class Matcher {
   public:
    explicit Matcher(const SplitRegex& regex);
    /// The leftmost match at `from` or later of `text`, which must be valid UTF-8; it may be empty. An error
    /// if the pattern exceeds PCRE2's limits on this text.
    Result<std::optional<SplitProgram::Match>> find(std::string_view text, std::size_t from);

   private:
    struct FreeData {
      void operator()(void* data) const;
    };
    struct FreeContext {
      void operator()(void* context) const;
    };
    struct FreeStack {
      void operator()(void* stack) const;
    };
    const SplitRegex* regex_;
    std::unique_ptr<void, FreeData> data_;        // pcre2_match_data
    std::unique_ptr<void, FreeStack> stack_;      // pcre2_jit_stack
    std::unique_ptr<void, FreeContext> context_;  // pcre2_match_context
    std::chrono::nanoseconds spent_{0};           // by all searches of this text
  };

 private:
  struct FreeCode {
    void operator()(void* code) const;
  };
  SplitRegex() = default;
  std::unique_ptr<void, FreeCode> code_;  // pcre2_code: pcre2.h stays out of this header
};

}  // namespace firstlight
