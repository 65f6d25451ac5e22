// UTF-8 as the Unicode standard's table 3-7 defines it: which bytes form a character, and which form a
// "maximal subpart" that one U+FFFD replaces (the practice of Python's decode(errors="replace")).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace firstlight {

enum class Utf8Kind : std::uint8_t {
  kCharacter,   // a whole well-formed character
  kInvalid,     // bytes that no further byte could turn into a character
  kIncomplete,  // the text ends inside a character that is well formed so far
};

struct Utf8Unit {
  Utf8Kind kind;
  std::size_t length;  // 1..4 bytes
};

/// The unit at the start of `text`, which must not be empty.
Utf8Unit utf8_unit(std::string_view text);

/// The code point of a unit of kind kCharacter.
char32_t utf8_code_point(std::string_view character);

bool is_valid_utf8(std::string_view text);

/// The length of the longest part from the start of `text` that is valid UTF-8.
std::size_t valid_utf8_length(std::string_view text);

/// Turns a stream of bytes into a stream of whole characters. Invalid bytes become U+FFFD, and the
/// result does not depend on how the stream was cut.
class Utf8Stream {
 public:
  /// Appends to `out` every character that is complete now.
  void push(std::string_view bytes, std::string& out);

  /// The stream has ended: what is still pending becomes one U+FFFD. The object can be used again.
  void finish(std::string& out);

  /// Whether a character has begun and not ended.
  [[nodiscard]] bool pending() const { return held_ != 0; }

 private:
  std::array<char, 4> buffer_{};  // the bytes of a begun character; [held_, 4) is free
  std::size_t held_ = 0;          // 0..3: a fourth byte always completes or breaks it
};

}  // namespace firstlight
