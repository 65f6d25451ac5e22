#include "text/split_program.h"

#include <gtest/gtest.h>

#include <numeric>

#include "text/split_pattern.h"
#include "text/split_regex.h"
#include "text/test_data.h"

namespace firstlight {
namespace {

// What published tokenizers split by.
constexpr std::string_view kPatterns[] = {
    // GPT-2
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
    // Llama 3
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    // Qwen 2 and 3
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    // Qwen 3.5
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    // o200k, gpt-oss
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    // Kimi
    R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    // DeepSeek V3
    R"(\p{N}{1,3})",
    "[一-龥\u3040-\u309f\u30a0-\u30ff]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
    "?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
    // cl100k as tiktoken writes it
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)",
    // DeepSeek Coder, BLOOM
    R"(\s?\p{L}+)",
    R"(\s?\p{P}+)",
    R"(\s+$)",
    " ?[^(\\s|[.,!?…。，、।۔،])]+",
    R"(\w+|[^\w\s]+)",
    R"((?=a)b?a|x{2,4}y{0,1}|[^\x41\u{42}]{3})",
};

std::string random_text(Random& random) {
  constexpr const char* parts[] = {
      "a",  "b",  "x",      "y", "A", "B", "Z", "0", "1",      " ",          " ",      "\n", "\r",
      "\t", "'s", "'LL",    "'", ".", "(", "/", "<", "\u00a0", "é",          "É",      "中", "。",
      "あ", "ー", "\u0301", "²", "٣", "ʰ", "ǅ", "ſ", "K",      "\U0001F600", "\u3000", "한"};
  std::string text;
  const std::size_t count = 1 + random() % 14;
  for (std::size_t i = 0; i < count; ++i) text += parts[random() % std::size(parts)];
  return text;
}

// The programs against PCRE2.
TEST(SplitProgram, EqualsTheRegularExpression) {
  Random random(21);
  for (const std::string_view pattern : kPatterns) {
    const auto program = SplitProgram::compile(pattern);
    ASSERT_TRUE(program.has_value()) << pattern;
    const auto regex = SplitRegex::compile(pattern);
    ASSERT_TRUE(regex.ok()) << regex.error().message;
    SplitProgram::Matcher fast(*program);
    SplitRegex::Matcher slow(*regex);
    for (int round = 0; round < 4'000; ++round) {
      const std::string text = random_text(random);
      for (std::size_t from = 0; from < text.size();) {
        const auto a = fast.find(text, from);
        const auto b = slow.find(text, from);
        ASSERT_TRUE(a.ok() && b.ok());
        ASSERT_EQ(a->has_value(), b->has_value()) << pattern << nlohmann::json(text) << " from " << from;
        if (!a->has_value()) break;
        ASSERT_EQ((*a)->begin, (*b)->begin) << pattern << nlohmann::json(text) << " from " << from;
        ASSERT_EQ((*a)->end, (*b)->end) << pattern << nlohmann::json(text) << " from " << from;
        from = (*a)->end;
      }
    }
  }
}

TEST(SplitProgram, LeavesOtherFormsToPcre2) {
  for (const char* other :
       {"a*",      "a??b",      "(a)", "(?:a|b)+", "(?:a+)",      "(?<!a)b", "a|",      "^a",
        "a.b",     "a{1,2}{3}", "a**", "\\ba",     "[\\p{Thai}]", "(?i)a",   "a{2000}", "[a",
        "a(?!bc)", "(?!a)",     "",    "|a",       "a{0}b",       "a{1,2}+"}) {
    EXPECT_FALSE(SplitProgram::compile(other).has_value()) << other;
  }
}

// A megabyte of anything is looked at a bounded number of times.
TEST(SplitProgram, LongRunsTakeLinearWork) {
  for (const std::string_view pattern : kPatterns) {
    const auto program = SplitProgram::compile(pattern);
    ASSERT_TRUE(program.has_value());
    for (const char* unit : {"a", "A", "中", "é", "\u0301", "1", ".", " ", "\n", "\t", " \n", "'", "aA", "あ",
                             "'s", "\U0001F600"}) {
      std::string text;
      while (text.size() < 300'000) text += unit;
      for (const char* end : {"", "x y", "\n", " "}) {
        SplitProgram::Matcher matcher(*program);
        const std::string whole = text + end;
        for (std::size_t from = 0; from < whole.size();) {
          const auto found = matcher.find(whole, from);
          ASSERT_TRUE(found.ok()) << found.error().message << " " << pattern << " " << unit;
          if (!*found) break;
          from = (*found)->end;
        }
      }
    }
  }
}

TEST(SplitProgram, QuadraticPatternsAreStopped) {
  for (const char* pattern : {"[ab]?a+b|a", "[ab]?a*a*a*a*b|a"}) {
    const auto program = SplitProgram::compile(pattern);
    ASSERT_TRUE(program.has_value());
    SplitProgram::Matcher matcher(*program);
    const std::string text(100'000, 'a');
    bool stopped = false;
    for (std::size_t from = 0; from < text.size() && !stopped;) {
      const auto found = matcher.find(text, from);
      stopped = !found.ok();
      if (!stopped) from = (*found)->end;
    }
    EXPECT_TRUE(stopped) << pattern;
  }
}

TEST(SplitPattern, MatchesAndGapsCoverTheText) {
  Random random(3);
  for (const char* pattern : {"a", "[ab]|x*", "(?=a)", "z*", "a|(?:b|)"}) {
    const auto compiled = SplitPattern::regex(pattern);
    ASSERT_TRUE(compiled.ok()) << compiled.error().message;
    SplitPattern::Matcher matcher(*compiled);
    for (int round = 0; round < 500; ++round) {
      const std::string text = random_text(random);
      std::size_t done = 0;
      const Status status =
          for_each_match(matcher, text, [&](std::size_t begin, std::size_t end, bool is_match) -> Status {
            EXPECT_EQ(begin, done);
            EXPECT_TRUE(is_match || end > begin);
            done = end;
            return {};
          });
      ASSERT_TRUE(status.ok());
      ASSERT_EQ(done, text.size());
    }
  }
}

}  // namespace
}  // namespace firstlight
