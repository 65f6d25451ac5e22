// Arbitrary bytes as text: ids keep the bytes, ordinary text yields no special id, the fast path of the
// splitter agrees with the pattern, and streamed decoding agrees with decoding at once.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/kimi_split.h"
#include "text/split_program.h"
#include "text/split_regex.h"
#include "text/stream_decoder.h"
#include "text/tiktoken.h"
#include "text/utf8.h"

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
    // "aa", "aaaa", "th", "the", " the", two thirds of a Han character.
    model += "YWE= 256\nYWFhYQ== 257\ndGg= 258\ndGhl 259\nIHRoZQ== 260\n5Lg= 261\n";
    auto made = firstlight::make_tiktoken({model, "tiktoken.model"},
                                          {R"({"tokenizer_class": "TikTokenTokenizer", "added_tokens_decoder":
             {"262": {"content": "<s>"}, "263": {"content": "<s>a", "special": true}, "264": {"content": "é"}}})",
                                           "tokenizer_config.json"});
    check(made.ok(), "the small tokenizer loads");
    return std::move(*made);
  }();
  return *loaded;
}

void try_split(std::string_view text) {
  if (!firstlight::is_valid_utf8(text)) return;
  static const auto program = firstlight::SplitProgram::compile(firstlight::kimi_split_pattern());
  static const auto regex = firstlight::SplitRegex::compile(firstlight::kimi_split_pattern());
  check(program.has_value() && regex.ok(), "the pattern compiles");
  firstlight::SplitProgram::Matcher fast(*program);
  firstlight::SplitRegex::Matcher slow(*regex);
  for (std::size_t position = 0; position < text.size();) {
    const auto a = fast.find(text, position);
    const auto b = slow.find(text, position);
    check(a.ok() && b.ok() && a->has_value() && b->has_value(), "every text is cut");
    check((*a)->begin == position && (*b)->begin == position, "without gaps");
    // The two know different versions of Unicode: behind a character that only one knows they may differ.
    if ((*a)->end != (*b)->end) break;
    position = (*a)->end;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try_split(text);
  for (const bool parse_special : {false, true}) {
    std::vector<std::int32_t> ids;
    check(tokenizer().encode(text, parse_special, ids).ok(), "every text can be encoded");
    check(firstlight::token_bytes(tokenizer(), ids) == text, "the ids' bytes are the text's");
    firstlight::StreamDecoder decoder(tokenizer());
    std::string streamed;
    for (const std::int32_t id : ids) {
      check(parse_special || !tokenizer().is_special(id), "ordinary text has no special id");
      decoder.push(id, streamed);
    }
    decoder.finish(streamed);
    firstlight::Utf8Stream whole;
    std::string at_once;
    whole.push(text, at_once);
    whole.finish(at_once);
    check(streamed == at_once, "streaming changes nothing");
  }
  return 0;
}
