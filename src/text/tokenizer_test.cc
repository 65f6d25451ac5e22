#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include "text/test_data.h"

namespace firstlight {
namespace {

class TokenizerFolder : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              ("tokenizer_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }
  std::string error() {
    const auto loaded = load_tokenizer(folder_);
    return loaded.ok() ? "" : loaded.error().message;
  }

  std::filesystem::path folder_;
};

TEST_F(TokenizerFolder, LoadsTiktoken) {
  write("tiktoken.model", text_test::small_model({"ab"}));
  write("tokenizer_config.json", R"({"tokenizer_class": "TikTokenTokenizer", "added_tokens_decoder": {}})");
  const auto loaded = load_tokenizer(folder_);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ((*loaded)->vocab_size(), 257 + 256);
  const auto sized = load_tokenizer(folder_, 300);
  ASSERT_TRUE(sized.ok()) << sized.error().message;
  EXPECT_EQ((*sized)->vocab_size(), 300);
}

TEST_F(TokenizerFolder, NamesWhatItFound) {
  EXPECT_NE(error().find("found no tokenizer file"), std::string::npos) << error();
  write("vocab.json", "{}");
  write("merges.txt", "");
  EXPECT_NE(error().find("expected tokenizer.json or tiktoken.model, found vocab.json, merges.txt"),
            std::string::npos)
      << error();
}

TEST_F(TokenizerFolder, MissingAndOddFilesAreNamed) {
  write("tiktoken.model", text_test::small_model({}));
  EXPECT_NE(error().find("tokenizer_config.json"), std::string::npos) << error();
  std::filesystem::remove(folder_ / "tiktoken.model");
  std::filesystem::create_directory(folder_ / "tiktoken.model");
  write("tokenizer_config.json", "{}");
  EXPECT_NE(error().find("tiktoken.model"), std::string::npos) << error();
}

}  // namespace
}  // namespace firstlight
