#include "text/stream_decoder.h"

#include <gtest/gtest.h>

#include "text/test_data.h"

namespace firstlight {
namespace {

using text_test::kimi;

std::string decoded(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids, bool skip = false) {
  StreamDecoder decoder(tokenizer, skip);
  std::string out;
  for (const std::int32_t id : ids) {
    std::string delta;
    decoder.push(id, delta);
    EXPECT_TRUE(is_valid_utf8(delta));
    out += delta;
  }
  decoder.finish(out);
  return out;
}

std::string whole(const std::string& bytes) {
  Utf8Stream stream;
  std::string out;
  stream.push(bytes, out);
  stream.finish(out);
  return out;
}

TEST(StreamDecoder, GoldenDecodings) {
  for (const std::string name : {"k2", "k3"}) {
    const auto rows = text_test::jsonl(text_test::data_path("kimi/kimi_" + name + ".decode.jsonl"));
    ASSERT_GT(rows.size(), 20U);
    for (const auto& row : rows) {
      const auto ids = row["ids"].get<std::vector<std::int32_t>>();
      ASSERT_EQ(decoded(kimi(name), ids), row["text_replace"].get<std::string>()) << row["id"];
      std::string hex;
      for (const char c : token_bytes(kimi(name), ids)) {
        constexpr char digits[] = "0123456789abcdef";
        hex += digits[static_cast<std::uint8_t>(c) >> 4];
        hex += digits[static_cast<std::uint8_t>(c) & 15];
      }
      ASSERT_EQ(hex, row["bytes_hex"].get<std::string>()) << row["id"];
    }
  }
}

TEST(StreamDecoder, RandomIdsEqualTheWhole) {
  const Tokenizer& tokenizer = kimi("k3");
  Random random(4);
  for (int round = 0; round < 2'000; ++round) {
    std::vector<std::int32_t> ids;
    const std::size_t count = random() % 12;
    while (ids.size() < count) {
      // Ids below 256 are single bytes: most sequences of them are not UTF-8.
      const auto limit = random() % 2 == 0 ? 256U : static_cast<std::uint64_t>(tokenizer.vocab_size());
      ids.push_back(static_cast<std::int32_t>(random() % limit));
    }
    ASSERT_EQ(decoded(tokenizer, ids), whole(token_bytes(tokenizer, ids)));
  }
}

TEST(StreamDecoder, SkipsOnlyDeclaredSpecials) {
  const Tokenizer& k2 = kimi("k2");
  // <|im_user|> is declared special, <|tool_call_begin|> is not; 163600 has no name of its own.
  EXPECT_EQ(decoded(k2, {163587, 22931, 2695, 163597, 163600}, true),
            "hello world<|tool_call_begin|><|reserved_token_163600|>");
  EXPECT_EQ(decoded(k2, {163587}), "<|im_user|>");
  EXPECT_EQ(decoded(k2, {-1, 163840, INT32_MAX, INT32_MIN}), "");
}

}  // namespace
}  // namespace firstlight
