// Arbitrary bytes as tokenizer_config.json: an error of one sentence, or tokens within the stated limits,
// with which a tokenizer loads or fails cleanly.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "text/tiktoken.h"
#include "text/tokenizer_config.h"

namespace {

const std::string& model() {
  static const std::string text = [] {
    constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string lines;
    for (std::size_t b = 0; b < 256; ++b) {
      lines += alphabet[b >> 2];
      lines += alphabet[(b & 3) << 4];
      lines += "== " + std::to_string(b) + "\n";
    }
    return lines;
  }();
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using firstlight::check;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = firstlight::parse_tokenizer_config(text, "tokenizer_config.json");
  if (!config) {
    check(config.error().message.find('\n') == std::string::npos, "one line");
    return 0;
  }
  if (config->added) {
    for (const auto& token : *config->added) {
      check(token.id >= 0 && !token.content.empty() && token.content.size() <= 1024, "within the limits");
    }
  }
  const auto loaded = firstlight::make_tiktoken({model(), "tiktoken.model"}, {text, "tokenizer_config.json"});
  if (!loaded) return 0;
  for (std::int32_t id = 256; id < (*loaded)->vocab_size(); ++id) {
    check((*loaded)->special_id((*loaded)->token_bytes(id)) == id, "each special token is found by its text");
  }
  return 0;
}
