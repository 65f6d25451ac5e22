#include "base/jsonl.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

namespace firstlight {
namespace {

class JsonlTest : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  /// "place: line" for each line of a file.
  [[nodiscard]] std::vector<std::string> lines(const std::string& text) const {
    std::ofstream(path_, std::ios::binary) << text;
    auto reader = JsonlReader::open(path_);
    EXPECT_TRUE(reader.ok());
    std::vector<std::string> found;
    for (std::string line; *reader->next(line);) {
      found.push_back(reader->place().substr(path_.size()) + " " + line);
    }
    return found;
  }

  std::string path_ =
      std::filesystem::temp_directory_path() / ("firstlight_jsonl_" + std::to_string(getpid()));
};

TEST_F(JsonlTest, LinesWithTheirNumbers) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(lines(""), Lines{});
  EXPECT_EQ(lines("\n \r\n"), Lines{});
  EXPECT_EQ(lines("a\n\nb\r\n c"), (Lines{":1 a", ":3 b\r", ":4  c"}));
  EXPECT_EQ(lines(std::string("a\0b\n", 4)), (Lines{std::string(":1 a\0b", 6)}));
}

TEST_F(JsonlTest, LinesAcrossBlocks) {
  for (const std::size_t size : {65535, 65536, 65537, 200000}) {
    const std::string line(size, 'x');
    EXPECT_EQ(lines(line + "\n" + line + "\nend"),
              (std::vector<std::string>{":1 " + line, ":2 " + line, ":3 end"}));
  }
}

TEST_F(JsonlTest, MissingFilesAndFoldersAreErrors) {
  EXPECT_FALSE(JsonlReader::open("/nonexistent").ok());
  auto folder = JsonlReader::open("/");
  std::string line;
  EXPECT_TRUE(!folder.ok() || !folder->next(line).ok());
}

TEST_F(JsonlTest, Rows) {
  EXPECT_TRUE(parse_row(R"({"id": "a"})", "f:1").ok());
  EXPECT_TRUE(parse_row(R"({"id": 3})", "f:1").ok());
  for (const char* bad :
       {"", "[]", "{}", R"({"id": null})", R"({"id": "a"} x)", R"({"id": "a", "id": "b"})"}) {
    const auto row = parse_row(bad, "f:7");
    ASSERT_FALSE(row.ok()) << bad;
    EXPECT_TRUE(row.error().message.starts_with("f:7: ")) << row.error().message;
  }
}

}  // namespace
}  // namespace firstlight
