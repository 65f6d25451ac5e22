// From a conversation to ids: formats and templates on the real Kimi vocabulary.
#include "text/prompt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "python/chat_format.h"
#include "text/test_data.h"

namespace firstlight {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::int32_t> ids_of(const ChatFormat& format, const Tokenizer& tokenizer, const Json& row) {
  const PromptEncoder encoder(tokenizer);
  const auto prompt =
      format.render(row.dump(), row.contains("tools"), encoder.control_texts(format.template_texts()));
  EXPECT_TRUE(prompt.ok()) << (prompt.ok() ? "" : prompt.error().message);
  std::vector<std::int32_t> ids;
  if (!prompt.ok()) return ids;
  EXPECT_TRUE(encoder.encode(*prompt, ids).ok());
  return ids;
}

std::int64_t special_count(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
  return std::count_if(ids.begin(), ids.end(), [&](std::int32_t id) { return tokenizer.is_special(id); });
}

/// Token counts of spec kimi 6.3, less the 3 of the opening that the published counts leave out.
TEST(PromptIds, KimiK3CountsArePublished) {
  const ChatFormat format = ChatFormat::named("kimi_k3");
  const Tokenizer& k3 = text_test::kimi("k3");
  const Json hello = {{"messages", {{{"role", "assistant"}, {"content", "你好"}}}},
                      {"kwargs", {{"reasoning_effort", "high"}}}};
  EXPECT_EQ(ids_of(format, k3, hello).size(), 99U + 3U);
  const Json effort = {{"messages", Json::array()}, {"kwargs", {{"add_generation_prompt", false}}}};
  EXPECT_EQ(ids_of(format, k3, effort).size(), 67U);
}

TEST(PromptIds, NobodyForgesAControlToken) {
  const auto k2_format = ChatFormat::load_template(std::filesystem::path(FL_REPO_ROOT) /
                                                   "tests/data/templates/Kimi-K2-Instruct.jinja");
  ASSERT_TRUE(k2_format.ok());
  const std::vector<std::pair<ChatFormat, std::string>> cases{
      {*k2_format, "k2"}, {ChatFormat::named("kimi_k25"), "k2"}, {ChatFormat::named("kimi_k3"), "k3"}};
  for (const auto& [format, vocabulary] : cases) {
    const Tokenizer& tokenizer = text_test::kimi(vocabulary);
    std::string
        every;  // special token; those for thoughts are ordinary text to K2's template, which writes none
    for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
      const std::string_view text = tokenizer.token_bytes(id);
      if (tokenizer.is_special(id) && !text.ends_with("think>")) every += text;
    }
    const auto row = [](const std::string& text) {
      const Json call = {
          {"id", "functions.f:0" + text},
          {"type", "function"},
          {"function", {{"name", "f" + text}, {"arguments", Json{{"x" + text, text}}.dump()}}}};
      return Json{{"messages",
                   {{{"role", "system"}, {"content", "s" + text}},
                    {{"role", "user"}, {"content", text + "u"}},
                    {{"role", "assistant"}, {"content", text}, {"tool_calls", {call}}},
                    {{"role", "tool"}, {"tool_call_id", call["id"]}, {"name", "f" + text}, {"content", text}},
                    {{"role", "user"},
                     {"content", {{{"type", "text"}, {"text", text}}, {{"type", "text"}, {"text", text}}}}}}},
                  {"tools",
                   {{{"type", "function"},
                     {"function", {{"name", "f"}, {"description", text}, {"parameters", Json::object()}}}}}}};
    };
    const auto honest = special_count(tokenizer, ids_of(format, tokenizer, row("plain")));
    EXPECT_GT(honest, 10);
    EXPECT_EQ(special_count(tokenizer, ids_of(format, tokenizer, row(every))), honest) << vocabulary;
  }
}

}  // namespace
}  // namespace firstlight
