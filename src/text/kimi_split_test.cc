#include "text/kimi_split.h"

#include <gtest/gtest.h>

#include <numeric>

#include "text/split_pattern.h"
#include "text/test_data.h"

namespace firstlight {
namespace {

const SplitPattern& pattern() {
  static const auto compiled = [] {
    auto result = SplitPattern::regex(kimi_split_pattern());
    check(result.ok(), "the pattern compiles");
    return std::move(*result);
  }();
  return compiled;
}

std::vector<std::size_t> pieces(std::string_view text) {
  SplitPattern::Matcher matcher(pattern());
  std::vector<std::size_t> lengths;
  const Status status =
      for_each_match(matcher, text, [&](std::size_t begin, std::size_t end, bool is_match) -> Status {
        EXPECT_TRUE(is_match);
        lengths.push_back(end - begin);
        return {};
      });
  EXPECT_TRUE(status.ok()) << status.error().message;
  return lengths;
}

TEST(KimiSplit, GoldenPieces) {
  const auto rows = text_test::jsonl(text_test::data_path("kimi/split.jsonl"));
  ASSERT_GT(rows.size(), 500U);
  for (const auto& row : rows) {
    ASSERT_EQ(pieces(row["text"].get<std::string>()), row["pieces"].get<std::vector<std::size_t>>()) << row;
  }
}

TEST(KimiSplit, EveryCharacterBeginsAPiece) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(c, text);
    ASSERT_EQ(pieces(text), std::vector<std::size_t>{text.size()}) << static_cast<std::uint32_t>(c);
  }
}

TEST(KimiSplit, GoldenCuts) {
  const auto rows = text_test::jsonl(text_test::data_path("kimi/precut.jsonl"));
  ASSERT_GT(rows.size(), 20U);
  for (const auto& row : rows) {
    std::string text;
    for (const auto& run : row["runs"]) {
      for (int i = 0; i < run[1].get<int>(); ++i) text += run[0].get<std::string>();
    }
    std::vector<std::size_t> lengths;
    const auto cuts = kimi_precut(text);
    const char* expected = text.data();
    for (const std::string_view cut : cuts) {
      ASSERT_EQ(cut.data(), expected);
      expected += cut.size();
      lengths.push_back(cut.size());
    }
    ASSERT_EQ(lengths, row["cuts"].get<std::vector<std::size_t>>()) << row["runs"];
  }
}

TEST(KimiSplit, InvalidBytesCountAsCharacters) {
  const auto cuts = kimi_precut(std::string(25'001, '\xff'));
  ASSERT_EQ(cuts.size(), 2U);
  EXPECT_EQ(cuts[0].size(), 25'000U);
  EXPECT_EQ(kimi_precut("").size(), 1U);
}

// The longest runs that the cuts leave, of every kind the pattern treats apart: no limit of the matcher is
// reached and nothing takes quadratic time.
TEST(KimiSplit, LongRuns) {
  for (const char* unit :
       {"a", "A", "中", "é", "Ж", "\u0301", "ʰ", "1", ".", " ", "\n", "\t", " \n", "'", "aA", "あ"}) {
    std::string text;
    while (text.size() < 25'000 * std::string_view(unit).size()) text += unit;
    text += "x y";
    const auto lengths = pieces(text);
    EXPECT_EQ(std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}), text.size()) << unit;
  }
}

}  // namespace
}  // namespace firstlight
