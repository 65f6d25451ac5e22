// Arbitrary bytes as tiktoken.model: an error, or a vocabulary that finds each of its tokens again.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "text/tiktoken_file.h"

namespace {

// Real inputs rarely hold all 256 bytes; given in front, the fuzzer reaches what lies behind that check.
std::string with_single_bytes(std::string_view tail) {
  constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t b = 0; b < 256; ++b) {
    text += alphabet[b >> 2];
    text += alphabet[(b & 3) << 4];
    text += "== " + std::to_string(b) + "\n";
  }
  return text.append(tail);
}

void try_file(std::string_view text) {
  using firstlight::check;
  const auto parsed = firstlight::parse_tiktoken_file(text, "tiktoken.model");
  if (!parsed) {
    check(parsed.error().message.size() < 300, "one short sentence");
    return;
  }
  for (std::int32_t rank = 0; rank < parsed->size(); ++rank) {
    check(parsed->find(parsed->bytes(rank)) == rank, "each token is found");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try_file(text);
  try_file(with_single_bytes(text));
  return 0;
}
