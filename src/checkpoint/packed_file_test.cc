#include "checkpoint/packed_file.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <random>

#include "checkpoint/test_folder.h"

namespace firstlight {
namespace {

using testing::safetensors_text;

class PackedFileTest : public ::testing::Test {
 protected:
  PackedFileTest() {
    std::mt19937 random(1);
    for (const std::int64_t bytes : {64, 1 << 18, 64 * 3, (1 << 19) + 64}) {
      std::vector<std::byte> data(static_cast<std::size_t>(bytes));
      for (std::byte& b : data) b = static_cast<std::byte>(random());
      data_.push_back(std::move(data));
      entries_.push_back({"matrix " + std::to_string(bytes), data_.back().data(), bytes});
    }
  }
  [[nodiscard]] std::string path() const { return folder_ / "firstlight.packed"; }
  Status write() { return write_packed_file(path(), "a key\nof lines\n", entries_, pool_, {}); }
  /// Whether the file opens and all of its matrices are what was written; never other bytes.
  bool intact() {
    const auto file = PackedFile::open(path());
    bool all = file.ok();
    for (std::size_t e = 0; all && e < entries_.size(); ++e) {
      std::vector<std::byte> out(data_[e].size());
      if (file->bytes_of(entries_[e].name) != entries_[e].bytes) return false;
      const bool read = file->read(entries_[e].name, out.data(), pool_).ok();
      EXPECT_TRUE(!read || out == data_[e]) << "damaged bytes were taken for good ones";
      all = read;
    }
    return all;
  }

  testing::TestFolder folder_;
  ThreadPool pool_{3};
  std::vector<std::vector<std::byte>> data_;
  std::vector<PackedBytes> entries_;
};

TEST_F(PackedFileTest, GivesBackWhatWasWritten) {
  ASSERT_TRUE(write().ok());
  EXPECT_TRUE(intact());
  const auto file = PackedFile::open(path());
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->key(), "a key\nof lines\n");
  EXPECT_EQ(file->entries(), entries_.size());
  EXPECT_EQ(file->bytes_of("matrix"), 0);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 1)
      << "something is left over";
}

TEST_F(PackedFileTest, NoByteCanChangeUnnoticed) {
  ASSERT_TRUE(write().ok());
  const std::size_t size = std::filesystem::file_size(path());
  std::uint64_t header = 0;
  std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
  file.read(reinterpret_cast<char*>(&header), sizeof(header));
  const std::size_t head = sizeof(header) + header;
  std::mt19937 random(2);
  for (std::size_t at = 0; at < size; at += at < head || at + 128 > size ? 1 : 1 + random() % (1U << 13)) {
    const auto place = static_cast<std::streamoff>(at);
    const int byte = file.seekg(place).get();
    file.seekp(place).put(static_cast<char>(byte ^ (1 << random() % 8))).flush();
    ASSERT_FALSE(intact()) << "byte " << at;
    file.seekp(place).put(static_cast<char>(byte)).flush();
  }
  EXPECT_TRUE(intact());
}

TEST_F(PackedFileTest, NoLengthButItsOwnWillDo) {
  ASSERT_TRUE(write().ok());
  const std::size_t size = std::filesystem::file_size(path());
  std::filesystem::resize_file(path(), size + 1);
  EXPECT_FALSE(PackedFile::open(path()).ok());
  for (std::size_t length = size - 1; length > 0;
       length -= std::min(length, std::size_t{length < 1200 ? 1U : 4093U})) {
    std::filesystem::resize_file(path(), length);
    ASSERT_FALSE(PackedFile::open(path()).ok()) << length << " bytes";
  }
  std::filesystem::resize_file(path(), 0);
  EXPECT_ERROR(PackedFile::open(path()), "0 bytes");
}

TEST_F(PackedFileTest, AFileThatShrinksWhileItIsOpenIsAnError) {
  ASSERT_TRUE(write().ok());
  const auto file = PackedFile::open(path());
  ASSERT_TRUE(file.ok());
  std::filesystem::resize_file(path(), 1 << 18);
  std::vector<std::byte> out(data_[3].size());
  EXPECT_ERROR(file->read(entries_[3].name, out.data(), pool_), "shrank");
}

TEST_F(PackedFileTest, ReplacingLeavesReadersOfTheOldFileAlone) {
  ASSERT_TRUE(write().ok());
  const auto old = PackedFile::open(path());
  ASSERT_TRUE(old.ok());
  ASSERT_TRUE(write_packed_file(path(), "another", std::span(entries_).subspan(1, 1), pool_, {}).ok());
  std::vector<std::byte> out(data_[3].size());
  EXPECT_TRUE(old->read(entries_[3].name, out.data(), pool_).ok());
  EXPECT_EQ(out, data_[3]);
}

TEST_F(PackedFileTest, WhatCannotBeWrittenLeavesNothing) {
  entries_[0].name = entries_[1].name;
  EXPECT_ERROR(write(), "twice");
  entries_[0].name = "first";
  EXPECT_ERROR(write_packed_file(folder_ / "absent/firstlight.packed", "", entries_, pool_, {}), "absent");
  std::filesystem::create_directory(path());
  EXPECT_ERROR(write(), "firstlight.packed");
  EXPECT_ERROR(PackedFile::open(path()), "is a folder");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 1);
}

/// In a process that may write no more bytes to a file: 0 when that ends in an error and an empty folder.
int write_within(const std::string& folder, std::int64_t limit, const std::function<Status()>& write) {
  const rlimit most{static_cast<rlim_t>(limit), static_cast<rlim_t>(limit)};
  ::signal(SIGXFSZ, SIG_IGN);
  if (::setrlimit(RLIMIT_FSIZE, &most) != 0) return 1;
  const Status written = write();
  if (written.ok() || written.error().message.find("cannot be written") == std::string::npos) return 2;
  return std::filesystem::is_empty(folder) ? 0 : 3;
}

TEST_F(PackedFileTest, ADiskThatIsFullIsAnErrorAndLeavesNothing) {
  for (const std::int64_t limit : {0, 500, 1 << 19}) {
    const pid_t child = ::fork();
    if (child == 0) {
      ThreadPool pool(2);  // threads do not survive a fork
      ::_exit(write_within(folder_.path(), limit,
                           [&] { return write_packed_file(path(), "", entries_, pool, {}); }));
    }
    int status = 1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << limit;
  }
}

TEST(PackedIndex, HostileHeaders) {
  const auto parse = [](const std::string& metadata, const std::string& tensors, std::size_t data) {
    const std::string file = safetensors_text("{\"__metadata__\":{" + metadata + "}" + tensors + "}", data);
    return parse_packed_index({reinterpret_cast<const std::uint8_t*>(file.data()), file.size()}, "f");
  };
  const std::string good = R"("format":"firstlight packed weights","version":"1","key":"k")";
  const auto tensor = [](const std::string& name, const std::string& type, int begin, int end, int elements) {
    return ",\"" + name + "\":{\"dtype\":\"" + type + "\",\"shape\":[" + std::to_string(elements) +
           "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
  };
  const std::string a = tensor("a", "U8", 0, 64, 64);
  const std::string sums = tensor("checksums", "U8", 64, 80, 16);
  ASSERT_TRUE(parse(good, a + sums, 80).ok());
  EXPECT_EQ(parse(good, a + sums, 80)->entries.at("a").bytes, 64);

  EXPECT_ERROR(parse(R"("version":"1","key":"k")", a + sums, 80), "\"format\"");
  EXPECT_ERROR(parse(R"("format":"pt","version":"1","key":"k")", a + sums, 80), "format");
  EXPECT_ERROR(parse(R"("format":"firstlight packed weights","key":"k")", a + sums, 80), "\"version\"");
  EXPECT_ERROR(parse(R"("format":"firstlight packed weights","version":"2","key":"k")", a + sums, 80),
               "version");
  EXPECT_ERROR(parse(R"("format":"firstlight packed weights","version":"1")", a + sums, 80), "\"key\"");
  EXPECT_ERROR(parse(good, "", 0), "checksums");
  EXPECT_ERROR(parse(good, a, 64), "checksums");
  EXPECT_ERROR(parse(good, tensor("checksums", "U8", 0, 16, 16) + tensor("a", "U8", 16, 80, 64), 80), "last");
  EXPECT_ERROR(parse(good, a + tensor("checksums", "U8", 64, 72, 8), 72), "checksums");
  EXPECT_ERROR(parse(good, a + tensor("checksums", "U8", 64, 81, 17), 81), "checksums");
  EXPECT_ERROR(parse(good, a + tensor("checksums", "I64", 64, 80, 2), 80), "U8");
  EXPECT_ERROR(parse(good, tensor("a", "F32", 0, 64, 16) + sums, 80), "U8");
  EXPECT_ERROR(parse(good, tensor("z", "U8", 0, 0, 0) + a + sums, 80), "empty");
  EXPECT_ERROR(parse(good, a + sums, 79), "truncated");
  EXPECT_ERROR(
      parse(good,
            ",\"a\":{\"dtype\":\"U8\",\"shape\":[9223372036854775807,4],\"data_offsets\":[0,64]}" + sums, 80),
      "overflows");
}

}  // namespace
}  // namespace firstlight
