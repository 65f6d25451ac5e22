#include "python/chat_template.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace firstlight {
namespace {

class ChatTemplateTest : public testing::Test {
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

  [[nodiscard]] std::string render() const {
    const auto chat_template = ChatTemplate::load(folder_);
    if (!chat_template) return "error: " + chat_template.error().message;
    const auto text = chat_template->render({{{"role", "user"}, {"content", "hi"}}});
    return text ? *text : "error: " + text.error().message;
  }

  std::filesystem::path folder_;
};

TEST_F(ChatTemplateTest, TheJinjaFileComesFirst) {
  write("tokenizer_config.json", R"({"chat_template": "config", "bos_token": {"content": "<s>"}})");
  EXPECT_EQ(render(), "config");
  write("chat_template.jinja", "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}");
  EXPECT_EQ(render(), "<s>hi");
}

TEST_F(ChatTemplateTest, OfNamedTemplatesTheDefaultIsTaken) {
  write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]})");
  EXPECT_EQ(render(), "d");
  write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "t"}]})");
  EXPECT_NE(render().find("named \"default\" (there are: \"tool_use\")"), std::string::npos) << render();
}

TEST_F(ChatTemplateTest, NoTemplateNamesBothPlaces) {
  for (const char* config : {"", "{}", R"({"chat_template": null})"}) {
    if (*config != '\0') write("tokenizer_config.json", config);
    EXPECT_NE(render().find("neither chat_template.jinja nor chat_template in tokenizer_config.json"),
              std::string::npos)
        << render();
  }
}

TEST_F(ChatTemplateTest, BrokenFilesAreNamed) {
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
