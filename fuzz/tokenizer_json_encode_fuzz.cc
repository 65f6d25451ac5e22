// Arbitrary bytes as text for tokenizers of both kinds: ids are in range, ordinary text has no special id,
// streamed decoding is decoding at once, and where nothing is normalised the ids' bytes are the text's.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/byte_letters.h"
#include "text/stream_decoder.h"
#include "text/tokenizer_json.h"
#include "text/unicode.h"

namespace {

using firstlight::check;
using firstlight::Tokenizer;

std::string byte_vocabulary() {
  std::string vocabulary;
  for (int b = 0; b < 256; ++b) {
    std::string letter;
    firstlight::append_utf8(firstlight::letter_of_byte(static_cast<std::uint8_t>(b)), letter);
    if (letter == "\"" || letter == "\\") letter.insert(0, "\\");
    vocabulary += "\"" + letter + "\": " + std::to_string(b) + ", ";
  }
  return vocabulary + R"("aa": 256, "aaaa": 257, "th": 258, "the": 259, "Ġthe": 260, "ä¸": 261, "a'": 262)";
}

std::unique_ptr<Tokenizer> make(const std::string& parts, const std::string& model) {
  constexpr std::string_view flags = R"(, "single_word": false, "lstrip": false, "normalized": )";
  std::string added;
  for (const auto& [id, content, more] :
       {std::array<std::string, 3>{"300", "<s>", R"(false, "rstrip": false, "special": true)"},
        std::array<std::string, 3>{"301", "<s>a", R"(false, "rstrip": true, "special": true)"},
        std::array<std::string, 3>{"302", "né", R"(true, "rstrip": false, "special": false)"}}) {
    added += (added.empty() ? "" : ", ") + (R"({"id": )" + id + R"(, "content": ")" + content + "\"") +
             std::string(flags) + more + "}";
  }
  auto made = firstlight::make_tokenizer_json(
      {R"({"added_tokens": [)" + added + "], " + parts + R"(, "model": {"type": "BPE", )" + model + "}}",
       "tokenizer.json"});
  check(made.ok(), made.ok() ? "" : made.error().message.c_str());
  return std::move(*made);
}

struct Kind {
  std::unique_ptr<Tokenizer> tokenizer;
  bool exact;  // the ids' bytes are the text's
};

const std::array<Kind, 3>& kinds() {
  static const std::array<Kind, 3> made = [] {
    const std::string bytes = "\"vocab\": {" + byte_vocabulary() +
                              R"(}, "merges": ["a a", "aa aa", "t h", "th e", "Ġ the", "ä ¸", "a '"])";
    const std::string split =
        R"("decoder": {"type": "ByteLevel"}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
           {"type": "Split", "behavior": "Isolated", "pattern": {"Regex": "\\p{N}{1,3}"}},
           {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}]})";
    std::string letters =
        R"("byte_fallback": true, "vocab": {"▁": 256, "▁▁": 257, "a": 258, "▁a": 259, "aa": 260)";
    for (int b = 0; b < 256; ++b) {
      constexpr std::string_view digits = "0123456789ABCDEF";
      letters += std::string(", \"<0x") + digits[static_cast<std::size_t>(b / 16)] +
                 digits[static_cast<std::size_t>(b % 16)] + ">\": " + std::to_string(b);
    }
    letters += R"(}, "merges": ["▁ ▁", "a a", "▁ a"])";
    const std::string spm =
        R"("normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}, "decoder": {"type": "Sequence",
           "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
                        {"type": "Fuse"}]})";
    return std::array<Kind, 3>{Kind{make(split, bytes), true},
                               Kind{make(split + R"(, "normalizer": {"type": "NFC"})", bytes), false},
                               Kind{make(spm, letters), false}};
  }();
  return made;
}

std::string replaced(std::string_view bytes) {
  firstlight::Utf8Stream whole;
  std::string out;
  whole.push(bytes, out);
  whole.finish(out);
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const Kind& kind : kinds()) {
    const Tokenizer& tokenizer = *kind.tokenizer;
    for (const bool parse_special : {false, true}) {
      std::vector<std::int32_t> ids;
      check(tokenizer.encode(text, parse_special, ids).ok(), "every text can be encoded");
      firstlight::StreamDecoder decoder(tokenizer);
      std::string streamed;
      for (const std::int32_t id : ids) {
        check(id >= 0 && id < tokenizer.vocab_size(), "ids are in the vocabulary");
        check(parse_special || !tokenizer.is_special(id), "ordinary text has no special id");
        decoder.push(id, streamed);
      }
      decoder.finish(streamed);
      const std::string bytes = firstlight::token_bytes(tokenizer, ids);
      check(streamed == replaced(bytes), "streaming changes nothing");
      if (kind.exact && !parse_special) check(bytes == text, "the ids' bytes are the text's");
    }
  }
  return 0;
}
