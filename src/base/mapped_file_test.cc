#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace firstlight {
namespace {

class MappedFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "firstlight_XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << text;
    return folder_ + "/" + name;
  }
  std::string folder_;
};

TEST_F(MappedFileTest, ShowsTheBytesAndSurvivesMoves) {
  const std::string path = write("a", "hello");
  auto opened = MappedFile::open(path);
  ASSERT_TRUE(opened.ok());
  const std::uint8_t* const data = opened->bytes().data();
  MappedFile moved = std::move(*opened);
  EXPECT_EQ(opened->size(), 0U);
  EXPECT_EQ(moved.bytes().data(), data);
  EXPECT_EQ(std::string(moved.bytes().begin(), moved.bytes().end()), "hello");
  EXPECT_EQ(moved.path(), path);
  for (const auto advice : {MappedFile::Advice::kWillNeed, MappedFile::Advice::kDontNeed}) {
    moved.advise(advice);
    moved.advise(advice, 3, 1000);
    moved.advise(advice, 1000, 1);
  }
  EXPECT_EQ(moved.bytes()[4], 'o');
  moved = MappedFile();
  EXPECT_EQ(moved.size(), 0U);
}

TEST_F(MappedFileTest, EmptyFileHasNoBytes) {
  const auto opened = MappedFile::open(write("empty", ""));
  ASSERT_TRUE(opened.ok());
  EXPECT_TRUE(opened->bytes().empty());
}

TEST_F(MappedFileTest, NamesWhatCannotBeOpened) {
  const auto missing = MappedFile::open(folder_ + "/none");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().message, folder_ + "/none: cannot be opened: No such file or directory");
  const auto folder = MappedFile::open(folder_);
  ASSERT_FALSE(folder.ok());
  EXPECT_EQ(folder.error().message, folder_ + ": is a folder, expected a file");
  ASSERT_EQ(::mkfifo((folder_ + "/pipe").c_str(), 0600), 0);
  const auto pipe = MappedFile::open(folder_ + "/pipe");  // must not wait for a writer
  ASSERT_FALSE(pipe.ok());
  EXPECT_EQ(pipe.error().message, folder_ + "/pipe: is not a regular file");
}

TEST_F(MappedFileTest, ReadFileIsBounded) {
  const std::string path = write("a", "12345");
  const auto whole = read_file(path, 5);
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(*whole, "12345");
  const auto refused = read_file(path, 4);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, path + ": has 5 bytes, at most 4 are accepted");
}

TEST(MappedFile, AFileThatShrinksEndsTheProgramWithItsName) {
  const std::string path = ::testing::TempDir() + "firstlight_shrinks_" + std::to_string(getpid());
  std::ofstream(path) << std::string(100'000, 'x');
  const auto read_behind_the_end = [&] {
    guard_mapped_files();
    const auto file = MappedFile::open(path);
    check(file.ok() && truncate(path.c_str(), 10) == 0, "a file to shrink");
    const volatile std::uint8_t* const bytes = file->bytes().data();
    std::exit(bytes[90'000] == 'x' ? 0 : 3);
  };
  EXPECT_EXIT(read_behind_the_end(), ::testing::ExitedWithCode(1), "error: " + path + ": shrank");
  std::filesystem::remove(path);
}

TEST(NameIsTaken, ALinkThatLeadsNowhereIsThere) {
  const std::string name = ::testing::TempDir() + "firstlight_link_" + std::to_string(getpid());
  EXPECT_FALSE(name_is_taken(name));
  std::filesystem::create_symlink(name + "_absent", name);
  EXPECT_TRUE(name_is_taken(name));
  EXPECT_FALSE(read_file(name, 100).ok());
  std::filesystem::remove(name);
}

}  // namespace
}  // namespace firstlight
