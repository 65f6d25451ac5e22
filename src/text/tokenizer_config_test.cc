#include "text/tokenizer_config.h"

#include <gtest/gtest.h>

namespace firstlight {
namespace {

std::string error_of(std::string_view text) {
  const auto parsed = parse_tokenizer_config(text, "tokenizer_config.json");
  return parsed.ok() ? "" : parsed.error().message;
}

void expect_error(const std::string& text, const std::string& part) {
  const std::string message = error_of(text);
  EXPECT_TRUE(message.starts_with("tokenizer_config.json: ")) << message;
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(TokenizerConfig, ReadsWhatTheTokenizerNeeds) {
  const auto parsed = parse_tokenizer_config(R"({
      "tokenizer_class": "TikTokenTokenizer", "model_max_length": 1000000000000000019884624838656,
      "added_tokens_decoder": {"300": {"content": "<b>", "special": true}, "299": {"content": "<a>"}},
      "bos_token": null, "eos_token": {"content": "<a>"}, "pad_token": "<b>",
      "additional_special_tokens": ["<c>"], "extra_special_tokens": {}})",
                                             "c");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->tokenizer_class, "TikTokenTokenizer");
  ASSERT_EQ(parsed->added->size(), 2U);
  EXPECT_EQ((*parsed->added)[0].id, 299);
  EXPECT_EQ((*parsed->added)[0].content, "<a>");
  EXPECT_FALSE((*parsed->added)[0].special);
  EXPECT_TRUE((*parsed->added)[1].special);
  EXPECT_EQ(parsed->eos_token, "<a>");
  EXPECT_EQ(parsed->named, (std::vector<std::string>{"<a>", "<b>", "<c>"}));
}

TEST(TokenizerConfig, EachFaultHasItsSentence) {
  expect_error("", "not valid JSON");
  expect_error("{\"added_tokens_decoder\": {", "not valid JSON");
  expect_error("[]", "expected a JSON object");
  expect_error(R"({"add_bos_token": 1})", "add_bos_token: expected true or false");
  expect_error(R"({"added_tokens_decoder": []})", "added_tokens_decoder: expected an object");
  expect_error(R"({"added_tokens_decoder": {}, "tokenizer_class": 1})", "tokenizer_class: expected a string");
  expect_error(R"({"added_tokens_decoder": {}, "eos_token": 1})",
               "eos_token: expected a string or an object");
  expect_error(R"({"added_tokens_decoder": {}, "eos_token": {}})",
               "eos_token: expected a string or an object");
  expect_error(R"({"added_tokens_decoder": {}, "additional_special_tokens": "x"})", "expected an array");
  expect_error(R"({"added_tokens_decoder": {}, "additional_special_tokens": [1]})", "expected a string");
  for (const char* id : {"-1", "x", "", "1.5", "01", "+1", " 1", "2147483648", "99999999999999999999"}) {
    expect_error(std::string(R"({"added_tokens_decoder": {")") + id + R"(": {"content": "x"}}})",
                 "the key is not an id");
  }
  expect_error(R"({"added_tokens_decoder": {"1": "x"}})", "expected an object");
  expect_error(R"({"added_tokens_decoder": {"1": {}}})", "content: expected a string");
  expect_error(R"({"added_tokens_decoder": {"1": {"content": ""}}})", "content: expected 1 to 1024 bytes");
  expect_error(R"({"added_tokens_decoder": {"1": {"content": ")" + std::string(1025, 'x') + R"("}}})",
               "content: expected 1 to 1024 bytes");
  expect_error(R"({"added_tokens_decoder": {"1": {"content": "x", "special": 1}}})",
               "special: expected true or false");
  expect_error(R"({"added_tokens_decoder": {"1": {"content": "x", "lstrip": 1}}})",
               "lstrip: expected true or false");
  expect_error(R"({"added_tokens_decoder": {"1": {"content": "x"}, "1": {"content": "y"}}})", "twice");
  expect_error("{\"added_tokens_decoder\": {\"1\": {\"content\": \"\xff\"}}}", "not valid JSON");
  expect_error(R"({"added_tokens_decoder": {"1": {"content": "\ud800"}}})", "not valid JSON");
  expect_error(std::string(1'000'000, '['), "nested deeper");
  expect_error("{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}", "nested deeper");
}

}  // namespace
}  // namespace firstlight
