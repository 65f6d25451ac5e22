#include "text/utf8.h"

#include <cstring>

namespace firstlight {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Length of the character and the range of its second byte, by its first byte (table 3-7). The narrowed
// ranges exclude overlong forms, surrogates and what lies above U+10FFFF.
struct Lead {
  std::size_t length;
  std::uint8_t low;
  std::uint8_t high;
};

Lead lead_of(std::uint8_t b) {
  if (b < 0x80) return {1, 0, 0};
  if (b < 0xC2) return {0, 0, 0};
  if (b < 0xE0) return {2, 0x80, 0xBF};
  if (b == 0xE0) return {3, 0xA0, 0xBF};
  if (b == 0xED) return {3, 0x80, 0x9F};
  if (b < 0xF0) return {3, 0x80, 0xBF};
  if (b == 0xF0) return {4, 0x90, 0xBF};
  if (b < 0xF4) return {4, 0x80, 0xBF};
  if (b == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Unit utf8_unit(std::string_view text) {
  const Lead lead = lead_of(static_cast<std::uint8_t>(text[0]));
  if (lead.length == 0) return {Utf8Kind::kInvalid, 1};
  std::uint8_t low = lead.low;
  std::uint8_t high = lead.high;
  for (std::size_t i = 1; i < lead.length; ++i) {
    if (i == text.size()) return {Utf8Kind::kIncomplete, i};
    const auto b = static_cast<std::uint8_t>(text[i]);
    if (b < low || b > high) return {Utf8Kind::kInvalid, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Kind::kCharacter, lead.length};
}

char32_t utf8_code_point(std::string_view character) {
  const auto lead = static_cast<std::uint8_t>(character[0]);
  if (character.size() == 1) return lead;
  // The lead byte of an n-byte character carries 7 - n bits, every other byte six.
  char32_t value = lead & (0x7FU >> character.size());
  for (std::size_t i = 1; i < character.size(); ++i) {
    value = (value << 6) | (static_cast<std::uint8_t>(character[i]) & 0x3FU);
  }
  return value;
}

bool is_valid_utf8(std::string_view text) { return valid_utf8_length(text) == text.size(); }

std::size_t valid_utf8_length(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    std::uint64_t word = 0;
    while (i + sizeof word <= text.size()) {  // ASCII, eight at a time
      std::memcpy(&word, text.data() + i, sizeof word);
      if ((word & 0x8080808080808080U) != 0) break;
      i += sizeof word;
    }
    if (i == text.size()) break;
    const Utf8Unit unit = utf8_unit(text.substr(i));
    if (unit.kind != Utf8Kind::kCharacter) break;
    i += unit.length;
  }
  return i;
}

void Utf8Stream::push(std::string_view bytes, std::string& out) {
  while (held_ != 0 && !bytes.empty()) {
    buffer_[held_] = bytes[0];
    const Utf8Unit unit = utf8_unit({buffer_.data(), held_ + 1});
    if (unit.kind == Utf8Kind::kInvalid) {  // the new byte broke it and begins a unit of its own
      out += kReplacement;
      held_ = 0;
      break;
    }
    bytes.remove_prefix(1);
    ++held_;
    if (unit.kind == Utf8Kind::kCharacter) {
      out.append(buffer_.data(), held_);
      held_ = 0;
    }
  }
  while (!bytes.empty()) {
    const Utf8Unit unit = utf8_unit(bytes);
    if (unit.kind == Utf8Kind::kIncomplete) {
      held_ = bytes.copy(buffer_.data(), unit.length);
      return;
    }
    if (unit.kind == Utf8Kind::kCharacter) {
      out.append(bytes.substr(0, unit.length));
    } else {
      out += kReplacement;
    }
    bytes.remove_prefix(unit.length);
  }
}

void Utf8Stream::finish(std::string& out) {
  if (held_ != 0) out += kReplacement;
  held_ = 0;
}

}  // namespace firstlight
