#include "text/special_tokens.h"

#include <gtest/gtest.h>

#include <set>

#include "text/test_data.h"

namespace firstlight {
namespace {

TEST(SpecialTokens, LeftmostThenLongest) {
  const auto specials = SpecialTokens::build(10, {"<a>", "<a>b", "x", "<", "a>b"});
  ASSERT_TRUE(specials.ok());
  const auto match = specials->find("..<a>b", 0);
  ASSERT_TRUE(match.has_value());
  EXPECT_EQ(match->begin, 2U);
  EXPECT_EQ(match->length, 4U);
  EXPECT_EQ(match->id, 11);
  EXPECT_EQ(specials->find("..<a>b", 3)->id, 14);
  EXPECT_FALSE(specials->find("..<a>b", 4).has_value());
  EXPECT_EQ(specials->id("<a>"), 10);
  EXPECT_FALSE(specials->id("<a").has_value());
  EXPECT_FALSE(specials->id("").has_value());
  EXPECT_TRUE(specials->contains(14));
  EXPECT_FALSE(specials->contains(9));
  EXPECT_FALSE(specials->contains(15));
  EXPECT_FALSE(SpecialTokens::build(0, {"a", "b", "a"}).ok());
}

TEST(SpecialTokens, EqualsASearchForEach) {
  Random random(3);
  const auto word = [&](std::size_t longest) {
    std::string s;
    const std::size_t length = 1 + random() % longest;
    while (s.size() < length) s += "ab\xff"[random() % 3];
    return s;
  };
  for (int round = 0; round < 300; ++round) {
    std::set<std::string> unique;
    const std::size_t count = random() % 8;
    while (unique.size() < count) unique.insert(word(6));
    const std::vector<std::string> contents(unique.begin(), unique.end());
    const auto specials = SpecialTokens::build(100, contents);
    ASSERT_TRUE(specials.ok());
    const std::string text = word(30);
    const std::size_t from = random() % (text.size() + 1);
    std::size_t begin = std::string::npos;
    std::size_t best = 0;
    for (std::size_t i = 0; i < contents.size(); ++i) {
      const std::size_t at = text.find(contents[i], from);
      if (at == std::string::npos || at > begin) continue;
      if (at < begin || contents[i].size() > contents[best].size()) best = i;
      begin = at;
    }
    const auto match = specials->find(text, from);
    ASSERT_EQ(match.has_value(), begin != std::string::npos);
    if (!match) continue;
    ASSERT_EQ(match->begin, begin);
    ASSERT_EQ(specials->content(match->id), contents[best]);
  }
}

}  // namespace
}  // namespace firstlight
