#include "text/stop_strings.h"

#include <gtest/gtest.h>

#include "text/test_data.h"
#include "text/utf8.h"

namespace firstlight {
namespace {

struct Found {
  std::string text;
  std::optional<std::size_t> stop;
  bool operator==(const Found&) const = default;
};

/// The definition: the shortest prefix of the text that ends with a stop string.
Found naive(const std::vector<std::string>& stops, const std::string& text) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < stops.size(); ++i) {
      if (!std::string_view(text).substr(0, end).ends_with(stops[i])) continue;
      if (!best || stops[i].size() > stops[*best].size()) best = i;
    }
    if (best) return {text.substr(0, end - stops[*best].size()), best};
  }
  return {text, std::nullopt};
}

StopStrings matcher_of(const std::vector<std::string>& stops) {
  auto created = StopStrings::create(stops);
  check(created.ok(), "test stop strings");
  return std::move(*created);
}

TEST(StopStrings, EqualsTheDefinitionAtEverySplit) {
  Random random(5);
  for (int round = 0; round < 2'000; ++round) {
    const auto word = [&](std::size_t longest) {
      std::string s;
      const std::size_t length = 1 + random() % longest;
      while (s.size() < length) s += static_cast<char>('a' + random() % 2);
      return s;
    };
    std::vector<std::string> stops;
    const std::size_t count = random() % 4;
    while (stops.size() < count) stops.push_back(word(6));
    const std::string text = word(20);
    const Found expected = naive(stops, text);
    for (std::size_t first = 0; first <= text.size(); ++first) {
      for (std::size_t second = first; second <= text.size(); ++second) {
        StopStrings matcher = matcher_of(stops);
        std::string out;
        matcher.push(std::string_view(text).substr(0, first), out);
        ASSERT_TRUE(expected.text.starts_with(out));
        matcher.push(std::string_view(text).substr(first, second - first), out);
        ASSERT_TRUE(expected.text.starts_with(out));
        matcher.push(std::string_view(text).substr(second), out);
        matcher.finish(out);
        ASSERT_EQ((Found{out, matcher.matched()}), expected) << text << " " << nlohmann::json(stops);
      }
    }
  }
}

TEST(StopStrings, HoldsBackOnlyWhatMayBecomeAStop) {
  StopStrings matcher = matcher_of({"</end>", "中文"});
  std::string out;
  matcher.push("a<b</e", out);
  EXPECT_EQ(out, "a<b");
  matcher.push("x中", out);
  EXPECT_EQ(out, "a<b</ex");
  matcher.push("国", out);
  EXPECT_EQ(out, "a<b</ex中国");
  matcher.push("</", out);
  matcher.push("end> and more", out);
  EXPECT_EQ(out, "a<b</ex中国");
  EXPECT_EQ(matcher.matched(), 0U);
  matcher.push("later", out);
  matcher.finish(out);
  EXPECT_EQ(out, "a<b</ex中国");
}

TEST(StopStrings, WholeCharactersLeave) {
  Random random(9);
  for (int round = 0; round < 500; ++round) {
    const std::string stop = text_test::random_text(random, 1 + random() % 3);
    StopStrings matcher = matcher_of({stop});
    for (int k = 0; k < 10; ++k) {
      std::string out;
      matcher.push(text_test::random_text(random, random() % 4), out);
      ASSERT_TRUE(is_valid_utf8(out));
    }
  }
}

TEST(StopStrings, RefusesEmptyAndBroken) {
  EXPECT_EQ(StopStrings::create({"a", ""}).error().message, "stop[1]: expected non-empty valid UTF-8");
  EXPECT_FALSE(StopStrings::create({"\xbf"}).ok());
  StopStrings none = matcher_of({});
  std::string out;
  none.push("text", out);
  EXPECT_EQ(out, "text");
}

}  // namespace
}  // namespace firstlight
