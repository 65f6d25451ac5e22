// Arbitrary bytes as the parts of a prompt: ids keep the bytes, literal parts add no special id, and without
// them the ids are those of the whole text. 0 and 1 begin a part, which is literal after a 1.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/prompt.h"
#include "text/tiktoken.h"

namespace {

using firstlight::check;

const firstlight::Tokenizer& tokenizer() {
  static const auto loaded = [] {
    constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string model;
    for (std::size_t b = 0; b < 256; ++b) {
      model += alphabet[b >> 2];
      model += alphabet[(b & 3) << 4];
      model += "== " + std::to_string(b) + "\n";
    }
    auto made = firstlight::make_tiktoken({model, "tiktoken.model"},
                                          {R"({"tokenizer_class": "TikTokenTokenizer", "added_tokens_decoder":
             {"256": {"content": "<s>"}, "257": {"content": "<s>a", "special": true}, "258": {"content": "é"}}})",
                                           "tokenizer_config.json"});
    check(made.ok(), "the small tokenizer loads");
    return std::move(*made);
  }();
  return *loaded;
}

std::ptrdiff_t special_count(const std::vector<std::int32_t>& ids) {
  return std::count_if(ids.begin(), ids.end(), [](std::int32_t id) { return tokenizer().is_special(id); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const firstlight::PromptEncoder encoder(tokenizer());
  firstlight::Prompt prompt;
  std::string structure;  // with a byte in place of each literal part
  for (std::size_t i = 0; i < size; ++i) {
    if (data[i] <= 1) {
      prompt.parts.push_back({"", data[i] == 1});
    } else if (!prompt.parts.empty()) {
      prompt.parts.back().text += static_cast<char>(data[i]);
    }
  }
  bool literal = false;
  for (const auto& part : prompt.parts) {
    literal |= part.literal && !part.text.empty();
    structure += part.literal ? std::string(part.text.empty() ? "" : "\x02") : part.text;
  }
  std::vector<std::int32_t> ids;
  check(encoder.encode(prompt, ids).ok(), "every prompt of one text can be encoded");
  check(firstlight::token_bytes(tokenizer(), ids) == prompt.text(), "the ids' bytes are the text's");
  std::vector<std::int32_t> alone;
  check(tokenizer().encode(structure, /*parse_special=*/true, alone).ok(), "every text can be encoded");
  check(special_count(ids) == special_count(alone), "special ids come from the structure");
  check(literal || ids == alone, "without literal parts a prompt is its text");
  return 0;
}
