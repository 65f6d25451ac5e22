// The alphabet that byte-level vocabularies are written in: one printable letter for each of the 256 bytes,
// so that tokens of arbitrary bytes can stand in a JSON file. Printable Latin-1 stands for itself; the other
// 68 bytes, in order, are U+0100 to U+0143 (the blank is U+0120).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace firstlight {

char32_t letter_of_byte(std::uint8_t b);

/// The byte that a letter stands for, -1 if none.
int byte_of_letter(char32_t letter);

/// The letters of the bytes of `text`, appended to `out`.
void append_letters(std::string_view text, std::string& out);

/// The bytes that valid UTF-8 stands for; nothing if one of its characters is no such letter.
std::optional<std::string> bytes_of_letters(std::string_view letters);

}  // namespace firstlight
