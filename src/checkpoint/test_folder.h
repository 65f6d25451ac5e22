// For tests: a temporary folder, and safetensors files whose header is given as text.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace firstlight::testing {

class TestFolder {
 public:
  TestFolder() {
    std::string pattern = ::testing::TempDir() + "firstlight_XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }
  void write(std::string_view name, std::string_view text) const {
    std::ofstream(*this / name, std::ios::binary) << text;
  }

 private:
  std::string path_;
};

/// A file with this header (unpadded) and `data_bytes` bytes 0, 1, 2, ... of data.
inline std::string safetensors_text(std::string_view header, std::size_t data_bytes) {
  std::string file(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(file.data(), &length, 8);
  file += header;
  for (std::size_t i = 0; i < data_bytes; ++i) file += static_cast<char>(i);
  return file;
}

inline bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

/// The folder of the larger sample checkpoints, or empty.
inline std::string shared_folder() {
  const char* set = std::getenv("FIRSTLIGHT_SHARED");
  std::string folder = set != nullptr ? set : std::string(FL_REPO_ROOT) + "/../shared";
  return std::filesystem::is_directory(folder) ? folder : std::string();
}

#define EXPECT_ERROR(result, part)                                               \
  do {                                                                           \
    const auto& checked_ = (result);                                             \
    ASSERT_FALSE(checked_.ok()) << "expected an error with: " << (part);         \
    EXPECT_TRUE(::firstlight::testing::contains(checked_.error().message, part)) \
        << checked_.error().message;                                             \
  } while (false)

}  // namespace firstlight::testing
