#include "base/json_limits.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace firstlight {
namespace {

std::string error_of(std::string_view text, const JsonLimits& limits = {}) {
  const auto result = parse_json(text, "f.json", limits);
  return result.ok() ? "" : result.error().message;
}

TEST(JsonLimits, AgreesWithThePlainParserOnGoodText) {
  for (const char* text : {"null", "[]", "{}", "-1", "1e3", "\"\\u00e9\\ud83d\\ude00\"",
                           R"({"b": [1, -2, 3.5, true, null, "x"], "a": {"b": {"b": []}}, "": {}})"}) {
    const auto result = parse_json(text, "f.json");
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(*result, nlohmann::ordered_json::parse(text));
    EXPECT_EQ(result->dump(), nlohmann::ordered_json::parse(text).dump());  // order of keys
  }
}

TEST(JsonLimits, DuplicateKeysAreNamedWithTheirPath) {
  EXPECT_EQ(error_of(R"({"a": 1, "b": 2, "a": 3})"), "f.json: key \"a\" appears twice");
  EXPECT_EQ(error_of(R"({"t": [{"u": {"x": 1, "\u0078": 2}}]})"), "f.json: key \"t.u.x\" appears twice");
}

TEST(JsonLimits, SyntaxErrorsHaveAPlace) {
  EXPECT_EQ(error_of("{\"a\":\n  tru}").find("f.json: is not valid JSON at line 2, column 6: "), 0U);
  EXPECT_EQ(error_of("").find("f.json: is not valid JSON at line 1, column 1: "), 0U);
  EXPECT_NE(error_of("{} x"), "");
  EXPECT_NE(error_of("[1,]"), "");
  EXPECT_NE(error_of("[1] // no"), "");
  EXPECT_EQ(error_of(std::string_view("{}\0{", 4)),
            "f.json: is not valid JSON at line 1, column 3: a NUL byte");
}

TEST(JsonLimits, NumbersThatJsonLacks) {
  EXPECT_EQ(error_of("{\"a\": NaN}"),
            "f.json: is not valid JSON at line 1, column 7: NaN and Infinity are not JSON numbers");
  EXPECT_EQ(error_of("[\n-Infinity]"),
            "f.json: is not valid JSON at line 2, column 2: NaN and Infinity are not JSON numbers");
  EXPECT_NE(error_of("[1e999]"), "");
}

TEST(JsonLimits, Utf8IsChecked) {
  for (const char* text : {"\"\xff\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"", "\"\\ud800\"", "{\"\xc3\": 1}"}) {
    const std::string error = error_of(text);
    EXPECT_EQ(error.find("f.json: is not valid JSON"), 0U) << text;
    for (const char c : error) EXPECT_TRUE(c >= 0x20 && c < 0x7f);
  }
}

TEST(JsonLimits, LimitsHold) {
  const auto nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(error_of(nested(64)), "");
  EXPECT_EQ(error_of(nested(65)), "f.json: is nested deeper than 64 levels");
  EXPECT_EQ(error_of(std::string(1 << 20, '[')), "f.json: is nested deeper than 64 levels");
  EXPECT_EQ(error_of("[1,2,3]", {.max_values = 4}), "");
  EXPECT_EQ(error_of("[1,2,3]", {.max_values = 3}), "f.json: holds more than 3 values");
  EXPECT_EQ(error_of("[1]", {.max_bytes = 2}), "f.json: has 3 bytes of JSON, at most 2 are accepted");
}

TEST(JsonLimits, ManyKeysTakeNoQuadraticTime) {
  std::string text = "{";
  for (int i = 0; i < 300000; ++i) text += "\"" + std::to_string(i) + "\":0,";
  text.back() = '}';
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(error_of(text), "");
  // A linear search per key takes minutes here.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(QuoteText, IsSafeToPrint) {
  EXPECT_EQ(quote_text(std::string_view("a\n\x80\0", 4)), "\"a\\x0a\\x80\\x00\"");
  EXPECT_EQ(quote_text("abcdef", 3), "\"abc...\"");
}

}  // namespace
}  // namespace firstlight
