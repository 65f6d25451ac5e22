#include "text/utf8.h"

#include <gtest/gtest.h>

#include "text/test_data.h"

namespace firstlight {
namespace {

using text_test::jsonl;

std::string unhex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(static_cast<std::uint8_t>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

TEST(Utf8, EveryCodePointRoundTrips) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    std::string text;
    append_utf8(c, text);
    const Utf8Unit unit = utf8_unit(text);
    const bool surrogate = c >= 0xD800 && c < 0xE000;
    ASSERT_EQ(unit.kind == Utf8Kind::kCharacter, !surrogate) << std::hex << static_cast<std::uint32_t>(c);
    if (surrogate) continue;
    ASSERT_EQ(unit.length, text.size());
    ASSERT_EQ(utf8_code_point(text), c);
    for (std::size_t cut = 1; cut < text.size(); ++cut) {
      ASSERT_EQ(utf8_unit(text.substr(0, cut)).kind, Utf8Kind::kIncomplete);
    }
  }
}

TEST(Utf8, ReplacesInvalidBytesLikePythonAtEverySplit) {
  const auto rows = jsonl(text_test::data_path("utf8_replace.jsonl"));
  ASSERT_GT(rows.size(), 1000U);
  for (const auto& row : rows) {
    const std::string bytes = unhex(row["hex"]);
    for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
      Utf8Stream stream;
      std::string out;
      stream.push(std::string_view(bytes).substr(0, cut), out);
      ASSERT_TRUE(is_valid_utf8(out)) << row["hex"] << " at " << cut;
      stream.push(std::string_view(bytes).substr(cut), out);
      stream.finish(out);
      ASSERT_EQ(out, row["text"].get<std::string>()) << row["hex"] << " at " << cut;
      ASSERT_FALSE(stream.pending());
    }
    ASSERT_EQ(is_valid_utf8(bytes), row["text"].get<std::string>() == bytes) << row["hex"];
  }
}

TEST(Utf8, HoldsOnlyAnUnfinishedCharacter) {
  Utf8Stream stream;
  std::string out;
  stream.push("a\xF0\x9F\x99", out);
  EXPECT_EQ(out, "a");
  EXPECT_TRUE(stream.pending());
  stream.push("\x82", out);
  EXPECT_EQ(out, "a\xF0\x9F\x99\x82");
  EXPECT_FALSE(stream.pending());
}

}  // namespace
}  // namespace firstlight
