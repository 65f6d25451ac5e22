// Arbitrary bytes as tokenizer.json: one short error, or a tokenizer that encodes a sample without trouble,
// both whole and with the bytes put in as the parts around a small model.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/stream_decoder.h"
#include "text/tokenizer_json.h"

namespace {

using firstlight::check;

constexpr std::string_view kSample =
    "Hello  world, don't 123 \n\n\tcafe\u0301 \u4e2d\u6587 <s>a<s> \xff aab ab aaaaaaaa";

void try_file(std::string_view text) {
  const auto made = firstlight::make_tokenizer_json({text, "tokenizer.json"});
  if (!made) {
    check(made.error().message.size() < 1000, "one short sentence");
    return;
  }
  const firstlight::Tokenizer& tokenizer = **made;
  for (const bool parse_special : {false, true}) {
    std::vector<std::int32_t> ids;
    if (!tokenizer.encode(kSample, parse_special, ids).ok()) continue;
    firstlight::StreamDecoder decoder(tokenizer);
    std::string out;
    for (const std::int32_t id : ids) {
      check(id >= 0 && id < tokenizer.vocab_size(), "ids are in the vocabulary");
      decoder.push(id, out);
    }
    decoder.finish(out);
    check(firstlight::is_valid_utf8(out), "decoded text is UTF-8");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try_file(text);
  // Most inputs break the model; with one given, the fuzzer reaches the parts around it.
  constexpr std::string_view model =
      R"(, "model": {"type": "BPE", "byte_fallback": true, "unk_token": "a", "vocab": {"a": 0, "b": 1, "aa": 2, "aab": 3,
         "<0x0A>": 4, "Ġ": 5, "Ġa": 6}, "merges": ["a a", ["aa", "b"], "Ġ a"]}})";
  try_file(std::string(text).append(model));
  return 0;
}
