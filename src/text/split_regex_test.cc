#include "text/split_regex.h"

#include <gtest/gtest.h>

namespace firstlight {
namespace {

std::string rewritten(std::string_view pattern) {
  const auto result = to_pcre2(pattern);
  return result.ok() ? *result : "error: " + result.error().message;
}

/// The length of the match that begins at the start of the text, 0 if none does.
std::size_t match(std::string_view pattern, std::string_view text) {
  const auto regex = SplitRegex::compile(pattern);
  EXPECT_TRUE(regex.ok()) << regex.error().message;
  SplitRegex::Matcher matcher(*regex);
  const auto found = matcher.find(text, 0);
  return found && *found && (*found)->begin == 0 ? (*found)->end : 0;
}

TEST(SplitRegex, RewritesWhatPcre2ReadsDifferently) {
  EXPECT_EQ(rewritten(R"([\p{Lu}\p{Mn}&&[^\p{Han}]]*x)"), R"((?:(?![\p{sc:Han}])[\p{Lu}\p{Mn}])*x)");
  EXPECT_EQ(rewritten(R"([^\s\p{Nd}]+\S)"), R"([^\p{Nd}\p{White_Space}]+[\P{White_Space}])");
  EXPECT_EQ(rewritten(R"([\]a-z&])"), R"([\x{5D}\x{61}-\x{7A}\x{26}])");
  EXPECT_EQ(rewritten(R"([a[bc]]\b)"), R"([\x{61}\x{62}\x{63}]\b)");
}

TEST(SplitRegex, FindsAcrossManyWindowsOfStartingPlaces) {
  const auto regex = SplitRegex::compile("(?<=é)b+");
  ASSERT_TRUE(regex.ok());
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "é ";  // three bytes: windows end inside of characters too
  text += "ébb";
  SplitRegex::Matcher matcher(*regex);
  const auto found = matcher.find(text, 1 + 1);
  ASSERT_TRUE(found.ok() && *found);
  EXPECT_EQ((*found)->begin, text.size() - 2);
  EXPECT_EQ((*found)->end, text.size());
}

TEST(SplitRegex, RefusesWhatItCannotSay) {
  for (const char* bad : {"[a&&b]",
                          "[a&&[b]]",
                          "[^a&&[^b]]",
                          "[a&&[^b]c]",
                          "[a&&[^b]&&[^c]]",
                          "[a[^b]]",
                          "[a&&[^b&&[^c]]]",
                          "[]a]",
                          "[a",
                          "[a&&[^b",
                          R"(\p{Alphabetic})",
                          R"(\p{L)",
                          R"(\p)",
                          "\\",
                          R"(\h)",
                          R"(\1)",
                          "[b-a]",
                          R"([a-\s])",
                          R"(\x{110000})",
                          R"(\x4)",
                          "(a(?1)?b)",
                          "(?R)",
                          "(?C1)a",
                          "(?(1)a)",
                          "(*NO_START_OPT)a",
                          "(?",
                          "[[:alpha:]]",
                          "[[[[[[[[[a]]]]]]]]]"}) {
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
  EXPECT_EQ(match(R"(\s+$)", "  \n x"), 2U);  // $ is the end of a line
}

TEST(SplitRegex, FindsTheLeftmost) {
  const auto regex = SplitRegex::compile("b+");
  ASSERT_TRUE(regex.ok());
  SplitRegex::Matcher matcher(*regex);
  const auto found = matcher.find("abba", 0);
  ASSERT_TRUE(found.ok() && found->has_value());
  EXPECT_EQ((*found)->begin, 1U);
  EXPECT_EQ((*found)->end, 3U);
  EXPECT_FALSE(matcher.find("abba", 3)->has_value());
}

TEST(SplitRegex, AnExponentialPatternIsStopped) {
  const auto regex = SplitRegex::compile("(?:a+)+b");
  ASSERT_TRUE(regex.ok());
  SplitRegex::Matcher matcher(*regex);
  const auto found = matcher.find(std::string(60, 'a') + "cb", 0);
  ASSERT_FALSE(found.ok());
  EXPECT_NE(found.error().message.find("limit"), std::string::npos) << found.error().message;
}

}  // namespace
}  // namespace firstlight
