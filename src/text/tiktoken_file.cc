#include "text/tiktoken_file.h"

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "text/merge_table.h"

namespace firstlight {
namespace {

// Known ones have up to 128 bytes; every place where a token can be cut in two is looked at.
constexpr std::size_t kLongest = 1024;

constexpr std::uint8_t kNotBase64 = 255;

constexpr std::array<std::uint8_t, 256> kBase64 = [] {
  constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::array<std::uint8_t, 256> table{};
  for (auto& value : table) value = kNotBase64;
  for (std::size_t i = 0; i < alphabet.size(); ++i) {
    table[static_cast<std::uint8_t>(alphabet[i])] = static_cast<std::uint8_t>(i);
  }
  return table;
}();

/// The next line without its end ("\n" or "\r\n"); `text` moves past it.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

std::size_t count_tokens(std::string_view text) {
  std::size_t count = 0;
  while (!text.empty()) count += take_line(text).empty() ? 0 : 1;
  return count;
}

}  // namespace

std::optional<std::string> decode_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::size_t padding = 0;
  while (padding < 2 && text.ends_with('=')) {
    text.remove_suffix(1);
    ++padding;
  }
  std::string bytes;
  bytes.reserve(text.size() * 3 / 4);
  std::uint32_t bits = 0;  // the last `held` of these are not yet written
  int held = 0;
  for (const char c : text) {
    const std::uint8_t value = kBase64[static_cast<std::uint8_t>(c)];
    if (value == kNotBase64) return std::nullopt;
    bits = (bits << 6) | value;
    held += 6;
    if (held >= 8) {
      held -= 8;
      bytes += static_cast<char>(static_cast<std::uint8_t>(bits >> held));
    }
  }
  if ((bits & ((1U << held) - 1U)) != 0) return std::nullopt;  // a second spelling of the same bytes
  return bytes;
}

Result<Vocabulary> parse_tiktoken_file(std::string_view text, const std::string& name) {
  // Offsets into the token bytes are 32 bit; known files have a few MiB.
  constexpr std::size_t kLimit = std::size_t{1} << 30;
  if (text.size() > kLimit) return Error{name + ": larger than 1 GiB"};
  const std::size_t count = count_tokens(text);
  if (count > std::size_t{MergeTable::kLargestId} + 1) return Error{name + ": too many tokens"};
  std::string blob;
  std::vector<Vocabulary::Span> spans(count);  // by rank; length 0 = not seen yet
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = take_line(text);
    if (line.empty()) continue;
    const auto fail = [&](const std::string& what) {
      return Error{name + " line " + std::to_string(number) + ": " + what};
    };
    const std::size_t blank = line.find(' ');
    if (blank == std::string_view::npos) return fail("expected \"<base64> <rank>\"");
    const auto bytes = decode_base64(line.substr(0, blank));
    if (!bytes || bytes->empty()) return fail("the token is not base64 of one or more bytes");
    if (bytes->size() > kLongest) return fail("the token has more than 1024 bytes");
    const std::string_view digits = line.substr(blank + 1);
    std::uint32_t rank = 0;
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
    if (parsed.ec != std::errc{} || parsed.ptr != digits.data() + digits.size()) {
      return fail("the rank is not a number from 0 to 4294967295");
    }
    if (rank >= count) {
      return fail("rank " + std::to_string(rank) + " in a file of " + std::to_string(count) + " tokens");
    }
    if (spans[rank].length != 0) return fail("rank " + std::to_string(rank) + " was given before");
    spans[rank] = {static_cast<std::uint32_t>(blob.size()), static_cast<std::uint32_t>(bytes->size())};
    blob += *bytes;
  }
  auto vocabulary = Vocabulary::build(std::move(blob), std::move(spans));
  if (!vocabulary) return Error{name + ": " + vocabulary.error().message};
  for (std::size_t b = 0; b < 256; ++b) {
    if (vocabulary->byte_id(static_cast<std::uint8_t>(b)) == Vocabulary::kNone) {
      return Error{name + ": no token for the single byte " + std::to_string(b) + " (all 256 are needed)"};
    }
  }
  return vocabulary;
}

}  // namespace firstlight
