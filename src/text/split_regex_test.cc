#include "text/split_regex.h"

#include <gtest/gtest.h>

namespace firstlight {
namespace {

std::string rewritten(std::string_view pattern) {
  const auto result = to_pcre2(pattern);
  return result.ok() ? *result : "error: " + result.error().message;
}

std::size_t match(std::string_view pattern, std::string_view text, std::size_t position = 0) {
  const auto regex = SplitRegex::compile(pattern);
  EXPECT_TRUE(regex.ok()) << regex.error().message;
  SplitRegex::Matcher matcher(*regex);
  const auto length = matcher.match(text, position);
  return length ? *length : 0;
}

TEST(SplitRegex, RewritesWhatPcre2ReadsDifferently) {
  EXPECT_EQ(rewritten(R"([\p{Lu}\p{M}&&[^\p{Han}]]*x)"), R"((?:(?![\p{sc:Han}])[\p{Lu}\p{M}])*x)");
  EXPECT_EQ(rewritten(R"([^\s\p{L}]+\S)"), R"([^\p{White_Space}\p{L}]+\P{White_Space})");
  EXPECT_EQ(rewritten(R"(\\s\[\p{Han}\pL&&)"), R"(\\s\[\p{sc:Han}\pL&&)");
  EXPECT_EQ(rewritten(R"([\]a-z&])"), R"([\]a-z&])");
}

TEST(SplitRegex, RefusesWhatItCannotSay) {
  for (const char* bad :
       {"[a&&b]", "[a&&[b]]", "[^a&&[^b]]", "[a&&[^b]c]", "[a&&[^b]&&[^c]]", "[a[b]]", "[a&&[^b&&[^c]]]",
        "[a", "[a&&[^b", R"(\p{Alphabetic})", R"(\p{L)", R"(\p)", "\\"}) {
    EXPECT_FALSE(to_pcre2(bad).ok()) << bad;
  }
  EXPECT_FALSE(SplitRegex::compile("(a").ok());
}

TEST(SplitRegex, MeansWhatTheTokenizersMean) {
  EXPECT_EQ(match(R"(\s)", "\u180e"), 0U);  // no white space since Unicode 6.3
  EXPECT_EQ(match(R"(\s)", "\u0085"), 2U);
  EXPECT_EQ(match(R"(\p{Han}+)", "中。"), 3U);  // 。 has Han only as a script extension
  EXPECT_EQ(match(R"([\p{L}&&[^\p{Han}]]+)", "é中"), 2U);
  EXPECT_EQ(match(R"((?i:'s))", "'\u017f"), 3U);
  EXPECT_EQ(match("b", "ab", 0), 0U);  // anchored
  EXPECT_EQ(match("b", "ab", 1), 1U);
}

TEST(SplitRegex, NoMatchAndEmptyMatchAreErrors) {
  const auto regex = SplitRegex::compile("a*");
  ASSERT_TRUE(regex.ok());
  SplitRegex::Matcher matcher(*regex);
  EXPECT_FALSE(matcher.match("b", 0).ok());
  EXPECT_EQ(*matcher.match("aab", 0), 2U);
}

}  // namespace
}  // namespace firstlight
