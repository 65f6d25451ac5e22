// A regular file, open for reading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"

namespace firstlight {

/// Size and time are those of when it was opened. A file that is replaced under its name stays readable.
class OpenFile {
 public:
  static Result<OpenFile> open(const std::string& path);
  ~OpenFile();
  OpenFile(OpenFile&& other) noexcept;
  OpenFile& operator=(OpenFile&& other) noexcept;
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  /// When the contents last changed: nanoseconds since 1970.
  [[nodiscard]] std::int64_t modified() const { return modified_; }

  /// Bytes [at, at + count); an Error when the file ends before or the disk fails. From any thread.
  Status read(std::size_t at, void* to, std::size_t count) const;
  /// A hint that these bytes will be read soon.
  void expect(std::size_t at, std::size_t count) const;

 private:
  explicit OpenFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_;
  int fd_;
  std::size_t size_ = 0;
  std::int64_t modified_ = 0;
};

/// "No such file or directory" for the given errno.
std::string system_error_text(int error_number);

}  // namespace firstlight
