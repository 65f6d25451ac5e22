#include "python/chat_format.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace firstlight {
namespace {

class ChatFormatTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("firstlight_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()) +
               std::to_string(getpid()));
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }

  [[nodiscard]] std::string render(bool has_tools = false) const {
    const auto format = ChatFormat::load(folder_);
    if (!format) return "error: " + format.error().message;
    const auto prompt = format->render(R"({"messages": [{"role": "user", "content": "hi"}]})", has_tools);
    return prompt ? prompt->text() : "error: " + prompt.error().message;
  }

  std::filesystem::path folder_;
};

TEST_F(ChatFormatTest, TheJinjaFileComesFirst) {
  write("tokenizer_config.json", R"({"chat_template": "config", "bos_token": {"content": "<s>"}})");
  EXPECT_EQ(render(), "config");
  write("chat_template.jinja", "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}");
  EXPECT_EQ(render(), "<s>hi");
}

TEST_F(ChatFormatTest, OfNamedTemplatesTheDefaultIsTakenAndToolUseForTools) {
  write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]})");
  EXPECT_EQ(render(), "d");
  EXPECT_EQ(render(/*has_tools=*/true), "t");
  write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "t"}]})");
  EXPECT_NE(render().find("named \"default\" (there are: \"tool_use\")"), std::string::npos) << render();
}

TEST_F(ChatFormatTest, FurtherPlaces) {
  write("chat_template.json", R"({"chat_template": "processor"})");
  EXPECT_EQ(render(), "processor");
  write("tokenizer_config.json", R"({"chat_template": "tokenizer"})");
  EXPECT_EQ(render(), "tokenizer");
  write("chat_template.jinja", "file");
  std::filesystem::create_directory(folder_ / "additional_chat_templates");
  write("additional_chat_templates/tool_use.jinja", "tools");
  EXPECT_EQ(render(), "file");
  EXPECT_EQ(render(/*has_tools=*/true), "tools");
}

TEST_F(ChatFormatTest, AFamilysOwnFormat) {
  write("config.json", R"({"model_type": "kimi_k3"})");
  EXPECT_NE(render().find("thinking_effort=max"), std::string::npos);
  EXPECT_TRUE(render().ends_with("<|open|>think<|sep|>")) << render();
  write("chat_template.jinja", "the checkpoint's own");
  EXPECT_EQ(render(), "the checkpoint's own");
  write("config.json", R"({"model_type": "kimi_k25"})");
  write("chat_template.jinja", "{{ tools_ts_str }}");
  const auto format = ChatFormat::load(folder_);
  ASSERT_TRUE(format.ok());
  const auto prompt = format->render(
      R"({"messages": [], "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]})",
      true);
  EXPECT_EQ(prompt->text(), "# Tools\n\n## functions\nnamespace functions {\ntype f = (_: {}) => any;\n}\n");
}

TEST_F(ChatFormatTest, NoTemplateNamesThePlaces) {
  for (const char* config : {"", "{}", R"({"chat_template": null})"}) {
    if (*config != '\0') write("tokenizer_config.json", config);
    EXPECT_NE(
        render().find("no chat template (chat_template.jinja, or chat_template in tokenizer_config.json or "
                      "chat_template.json)"),
        std::string::npos)
        << render();
  }
}

TEST_F(ChatFormatTest, BrokenFilesAreNamed) {
  for (const char* config : {"{", "[]", R"({"chat_template": 3})", R"({"chat_template": ["x"]})"}) {
    write("tokenizer_config.json", config);
    const std::string message = render();
    EXPECT_EQ(message.rfind("error: " + (folder_ / "tokenizer_config.json").string(), 0), 0) << message;
  }
  std::filesystem::remove(folder_ / "tokenizer_config.json");
  write("chat_template.jinja", "{{ raise_exception('no') }}");
  EXPECT_EQ(render(), "error: " + (folder_ / "chat_template.jinja").string() +
                          ": the chat template refuses these messages: no");
}

}  // namespace
}  // namespace firstlight
