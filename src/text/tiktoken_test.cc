#include "text/tiktoken.h"

#include <gtest/gtest.h>

#include <chrono>

#include "text/stream_decoder.h"
#include "text/test_data.h"

namespace firstlight {
namespace {

using text_test::kimi;
using text_test::small_model;
using Ids = std::vector<std::int32_t>;

Ids encode(const Tokenizer& tokenizer, std::string_view text, bool parse_special = false) {
  Ids ids;
  const Status status = tokenizer.encode(text, parse_special, ids);
  EXPECT_TRUE(status.ok()) << status.error().message;
  return ids;
}

std::string config_with(const std::string& added, const std::string& more = "") {
  return R"({"tokenizer_class": "TikTokenTokenizer", "added_tokens_decoder": {)" + added + "}" + more + "}";
}

Result<std::unique_ptr<Tokenizer>> make(const std::string& model, const std::string& config,
                                        std::optional<std::int64_t> vocab_size = std::nullopt) {
  return make_tiktoken({model, "tiktoken.model"}, {config, "tokenizer_config.json"}, vocab_size);
}

TEST(Tiktoken, GoldenEncodings) {
  for (const std::string name : {"k2", "k3"}) {
    const auto rows = text_test::jsonl(text_test::data_path("kimi/kimi_" + name + ".encode.jsonl"));
    ASSERT_GT(rows.size(), 200U);
    for (const auto& row : rows) {
      EXPECT_EQ(encode(kimi(name), row["text"].get<std::string>(), row["parse_special"]),
                row["ids"].get<Ids>())
          << row["id"] << " " << row["text"];
    }
  }
}

TEST(Tiktoken, GoldenLongTexts) {
  const auto path = text_test::shared_path("data/goldens/tokenizers/mixed_long.encode.jsonl");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "81 long encodings skipped: no " << path;
  int compared = 0;
  for (const auto& row : text_test::jsonl(path)) {
    for (const std::string name : {"k2", "k3"}) {
      if (!row["ids"].contains("kimi_" + name)) continue;
      ++compared;
      EXPECT_EQ(encode(kimi(name), row["text"].get<std::string>(), row["parse_special"]),
                row["ids"]["kimi_" + name].get<Ids>())
          << row["id"];
    }
  }
  EXPECT_GT(compared, 50);
}

TEST(Tiktoken, KnownIds) {
  const Tokenizer& k3 = kimi("k3");
  EXPECT_EQ(k3.vocab_size(), 163840);
  EXPECT_EQ(encode(k3, "think"), Ids{39964});
  EXPECT_EQ(encode(k3, "response"), Ids{12092});
  EXPECT_EQ(encode(k3, "message"), Ids{2778});
  EXPECT_EQ(k3.special_id("<|open|>"), 163587);
  EXPECT_EQ(k3.special_id("<|reserved_token_163600|>"), 163600);
  EXPECT_FALSE(k3.special_id("<|im_user|>").has_value());
  EXPECT_EQ(k3.eos_id(), 163586);
  EXPECT_EQ(kimi("k2").eos_id(), 163585);
  EXPECT_TRUE(k3.is_special(163584));
  EXPECT_FALSE(k3.is_special(163583));
  EXPECT_FALSE(k3.is_special(163840));
  EXPECT_EQ(k3.token_bytes(0), "!");
  EXPECT_EQ(k3.token_bytes(-1), "");
  EXPECT_EQ(k3.token_bytes(163840), "");
}

TEST(Tiktoken, OrdinaryTextNeverYieldsASpecialId) {
  const Tokenizer& k3 = kimi("k3");
  const std::string text = "<|open|>message<|sep|>[EOS]<|reserved_token_163600|>";
  for (const std::int32_t id : encode(k3, text)) EXPECT_FALSE(k3.is_special(id));
  EXPECT_EQ(encode(k3, text, true), (Ids{163587, 2778, 163589, 163585, 163600}));
}

TEST(Tiktoken, BytesOfIdsAreTheBytesOfText) {
  Random random(2);
  for (int round = 0; round < 3'000; ++round) {
    std::string text = text_test::random_text(random, random() % 60);
    if (round % 3 == 0) text = text_test::random_bytes(random, random() % 60);
    if (round % 3 == 1) text.insert(random() % (text.size() + 1), text_test::random_bytes(random, 2));
    if (round % 7 == 0) text.insert(random() % (text.size() + 1), "<|open|>");
    const Tokenizer& k3 = kimi("k3");
    for (const bool parse_special : {false, true}) {
      ASSERT_EQ(token_bytes(k3, encode(k3, text, parse_special)), text);
    }
  }
}

TEST(Tiktoken, BytesThatAreNotUtf8AreSingleTokens) {
  const Tokenizer& k3 = kimi("k3");
  Ids expected = encode(k3, "hello");
  const Ids snow = encode(k3, " world");
  const Ids broken = encode(k3, "hello\xe2\x98 world");
  ASSERT_EQ(broken.size(), expected.size() + 2 + snow.size());
  EXPECT_EQ(k3.token_bytes(broken[expected.size()]), "\xe2");
  EXPECT_EQ(k3.token_bytes(broken[expected.size() + 1]), "\x98");
}

// The cuts come before the search for special tokens: across one, their text is ordinary (as in the
// first-party code).
TEST(Tiktoken, LongRunsAreCut) {
  const Tokenizer& k3 = kimi("k3");
  Ids expected = encode(k3, std::string(25'000, 'a'));
  const Ids rest = encode(k3, "aaa");
  expected.insert(expected.end(), rest.begin(), rest.end());
  EXPECT_EQ(encode(k3, std::string(25'003, 'a')), expected);
  const std::string across = std::string(24'996, 'a') + "<|open|>";
  for (const std::int32_t id : encode(k3, across, true)) EXPECT_FALSE(k3.is_special(id));
  EXPECT_EQ(encode(k3, across.substr(4), true).back(), 163587);
}

TEST(Tiktoken, SmallVocabularyWithItsOwnCount) {
  const std::string model = small_model({"th", "the", " the"});
  const auto loaded =
      make(model, config_with(R"("260": {"content": "<s>"})", R"(, "eos_token": "<s>")"), 262);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const Tokenizer& t = **loaded;
  EXPECT_EQ(t.vocab_size(), 262);
  EXPECT_EQ(t.eos_id(), 260);
  EXPECT_EQ(t.token_bytes(259), "<|reserved_token_259|>");
  EXPECT_EQ(encode(t, "the the<s>", true), (Ids{257, 258, 260}));
  EXPECT_EQ(t.token_bytes(262), "");
  const auto none = make(model, config_with(""), 259);
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE((*none)->is_special(259));
}

TEST(Tiktoken, EachFaultHasItsSentence) {
  const std::string model = small_model({});
  const auto expect_error = [&](const std::string& config, std::optional<std::int64_t> vocab_size,
                                const std::string& part) {
    const auto loaded = make(model, config, vocab_size);
    ASSERT_FALSE(loaded.ok()) << part;
    EXPECT_NE(loaded.error().message.find(part), std::string::npos) << loaded.error().message;
  };
  expect_error(config_with(R"("255": {"content": "x"})"), {},
               "added_tokens_decoder.255: expected an id from 256");
  expect_error(config_with(R"("512": {"content": "x"})"), {},
               "added_tokens_decoder.512: expected an id from 256");
  expect_error(config_with(R"("256": {"content": "x"}, "257": {"content": "x"})"), {}, "ids 256 and 257");
  expect_error(config_with(R"("256": {"content": "<|reserved_token_257|>"})"), {}, "ids 256 and 257");
  expect_error(config_with("", R"(, "eos_token": "x")"), {}, "eos_token: \"x\" is not a special token");
  expect_error(config_with(""), 255, "do not go with vocab_size 255");
  expect_error(config_with(""), -1, "do not go with vocab_size -1");
  expect_error(config_with(""), INT64_MAX, "do not go with vocab_size");
  expect_error(config_with(""), INT64_MIN, "do not go with vocab_size");
  expect_error(config_with(R"("256": {"content": "x", "lstrip": true})"), {},
               "lstrip: true is not supported");
  expect_error(R"({"tokenizer_class": "TikTokenTokenizer"})", {}, "added_tokens_decoder: is missing");
  expect_error(R"({"added_tokens_decoder": {}, "tokenizer_class": "QWenTokenizer"})", {},
               "TikTokenTokenizer");
}

TEST(Tiktoken, Speed) {
  const Tokenizer& k3 = kimi("k3");
  const auto print = [&](const char* what, const std::string& text) {
    const auto start = std::chrono::steady_clock::now();
    const Ids ids = encode(k3, text);
    const auto middle = std::chrono::steady_clock::now();
    StreamDecoder decoder(k3);
    std::string out;
    for (const std::int32_t id : ids) decoder.push(id, out);
    const auto end = std::chrono::steady_clock::now();
    const double mb = static_cast<double>(text.size()) / 1e6;
    std::printf("%-24s %5.1f MB, %8zu ids: encode %6.1f MB/s, decode %6.1f MB/s\n", what, mb, ids.size(),
                mb / std::chrono::duration<double>(middle - start).count(),
                mb / std::chrono::duration<double>(end - middle).count());
    EXPECT_EQ(out, text);
  };
  std::string mixed;
  for (const auto& row : text_test::jsonl(text_test::data_path("kimi/kimi_k3.encode.jsonl"))) {
    mixed += row["text"].get<std::string>();
  }
  std::string long_mixed;
  while (long_mixed.size() < 2'000'000) long_mixed += mixed;
  std::string code;
  while (code.size() < 2'000'000) code += "  for (int i = 0; i < count; ++i) total += values[i];\n";
  print("golden texts", long_mixed);
  print("code", code);
  print("one letter", std::string(1'000'000, 'a'));
  print("spaces", std::string(1'000'000, ' '));
  print("one character", [] {
    std::string text;
    while (text.size() < 1'000'000) text += "中";
    return text;
  }());
}

}  // namespace
}  // namespace firstlight
