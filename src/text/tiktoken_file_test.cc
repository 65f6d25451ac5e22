#include "text/tiktoken_file.h"

#include <gtest/gtest.h>

#include "text/test_data.h"

namespace firstlight {
namespace {

using text_test::small_model;

std::string error_of(const std::string& text) {
  const auto parsed = parse_tiktoken_file(text, "tiktoken.model");
  return parsed.ok() ? "" : parsed.error().message;
}

TEST(Base64, RoundTripsAndRefusesEverythingElse) {
  Random random(1);
  for (std::size_t size = 0; size < 40; ++size) {
    const std::string bytes = text_test::random_bytes(random, size);
    EXPECT_EQ(decode_base64(text_test::base64(bytes)), bytes);
  }
  for (const char* bad :
       {"A", "AB", "ABC", "====", "A===", "AB=C", "AB-_", "AB==AB==", "AB C", "AR==", "AAF="}) {
    EXPECT_FALSE(decode_base64(bad).has_value()) << bad;
  }
}

TEST(TiktokenFile, ReadsTokensInAnyOrderAndAnyLineEnd) {
  std::string text = small_model({});
  text = "YWI= 257\r\n\n" + text + "YWE= 256";
  const auto parsed = parse_tiktoken_file(text, "tiktoken.model");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->size(), 258);
  EXPECT_EQ(parsed->bytes(256), "aa");
  EXPECT_EQ(parsed->find("ab"), 257);
  EXPECT_EQ(parsed->find("ba"), Vocabulary::kNone);
  EXPECT_EQ(parsed->find(""), Vocabulary::kNone);
  EXPECT_EQ(parsed->byte_id(255), 255);
}

TEST(TiktokenFile, EachFaultHasItsSentence) {
  const std::string good = small_model({});
  const auto contains = [](const std::string& message, const std::string& part) {
    EXPECT_TRUE(message.starts_with("tiktoken.model")) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  contains(error_of(""), "no token for the single byte 0");
  contains(error_of("\x1f\x8b\x08\x00"), "line 1: expected \"<base64> <rank>\"");
  contains(error_of(good + "YWE=\n"), "line 257: expected");
  contains(error_of(good + "YWE 256\n"), "line 257: the token is not base64");
  contains(error_of(good + " 256\n"), "line 257: the token is not base64");
  contains(error_of(good + "YWE= -1\n"), "line 257: the rank is not a number");
  contains(error_of(good + "YWE= 256 \n"), "line 257: the rank is not a number");
  contains(error_of(good + "YWE= \n"), "line 257: the rank is not a number");
  contains(error_of(good + "YWE= 99999999999999999999\n"), "line 257: the rank is not a number");
  contains(error_of(good + "YWE= 257\n"), "line 257: rank 257 in a file of 257 tokens");
  contains(error_of(good + text_test::base64(std::string(1025, 'a')) + " 256\n"), "more than 1024 bytes");
  contains(error_of(good + "YWE= 0\n"), "line 257: rank 0 was given before");
  contains(error_of(good + "AA== 256\n"), "ids 0 and 256 are the same token");
  contains(error_of("YWE= 0\n" + good.substr(good.find('\n') + 1)), "no token for the single byte 0");
}

TEST(TiktokenFile, EveryTruncationIsAnErrorOrLosesWholeLines) {
  const std::string model = small_model({"abc", "ab"});
  for (std::size_t size = 0; size < model.size(); ++size) {
    const auto parsed = parse_tiktoken_file(std::string_view(model).substr(0, size), "tiktoken.model");
    if (parsed.ok()) {
      EXPECT_GE(parsed->size(), 256) << size;
    }
  }
}

}  // namespace
}  // namespace firstlight
