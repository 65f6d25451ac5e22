#include "text/byte_letters.h"

#include <array>

#include "text/unicode.h"

namespace firstlight {
namespace {

constexpr bool stands_for_itself(std::size_t b) {
  return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
}

constexpr std::size_t kLetters = 0x144;

struct Tables {
  std::array<std::uint16_t, 256> letters{};
  std::array<std::int16_t, kLetters> bytes{};
};

constexpr Tables kTables = [] {
  Tables t;
  for (auto& b : t.bytes) b = -1;
  std::uint16_t next = 0x100;
  for (std::size_t b = 0; b < t.letters.size(); ++b) {
    t.letters[b] = stands_for_itself(b) ? static_cast<std::uint16_t>(b) : next++;
    t.bytes[t.letters[b]] = static_cast<std::int16_t>(b);
  }
  return t;
}();

}  // namespace

char32_t letter_of_byte(std::uint8_t b) { return kTables.letters[b]; }

int byte_of_letter(char32_t letter) { return letter < kLetters ? kTables.bytes[letter] : -1; }

void append_letters(std::string_view text, std::string& out) {
  for (const char c : text) append_utf8(letter_of_byte(static_cast<std::uint8_t>(c)), out);
}

std::optional<std::string> bytes_of_letters(std::string_view letters) {
  std::string bytes;
  for (std::size_t i = 0; i < letters.size();) {
    const int b = byte_of_letter(next_code_point(letters, i));
    if (b < 0) return std::nullopt;
    bytes += static_cast<char>(static_cast<std::uint8_t>(b));
  }
  return bytes;
}

}  // namespace firstlight
