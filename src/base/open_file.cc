#include "base/open_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace firstlight {

std::string system_error_text(int error_number) { return std::generic_category().message(error_number); }

Result<OpenFile> OpenFile::open(const std::string& path) {
  // O_NONBLOCK: opening a pipe must not wait for a writer. It means nothing for regular files.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return Error{path + ": cannot be opened: " + system_error_text(errno)};
  OpenFile file(path, fd);
  struct stat info {};
  if (::fstat(fd, &info) != 0) return Error{path + ": cannot be examined: " + system_error_text(errno)};
  if (S_ISDIR(info.st_mode)) return Error{path + ": is a folder, expected a file"};
  if (!S_ISREG(info.st_mode)) return Error{path + ": is not a regular file"};
  file.size_ = static_cast<std::size_t>(info.st_size);
  constexpr std::int64_t kSecond = 1000000000;
  if (__builtin_mul_overflow(std::int64_t{info.st_mtim.tv_sec}, kSecond, &file.modified_) ||
      __builtin_add_overflow(file.modified_, std::int64_t{info.st_mtim.tv_nsec}, &file.modified_)) {
    file.modified_ = info.st_mtim.tv_sec;  // centuries away: still a number that changes with the time
  }
  return file;
}

OpenFile::~OpenFile() {
  if (fd_ >= 0) ::close(fd_);
}

OpenFile::OpenFile(OpenFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      modified_(other.modified_) {}

OpenFile& OpenFile::operator=(OpenFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  std::swap(modified_, other.modified_);
  return *this;
}

Status OpenFile::read(std::size_t at, void* to, std::size_t count) const {
  auto* p = static_cast<char*>(to);
  while (count > 0) {
    const ssize_t n = ::pread(fd_, p, count, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error{path_ + ": cannot be read: " + system_error_text(errno)};
    if (n == 0)
      return Error{path_ + ": ends at byte " + std::to_string(at) + ", it shrank while it was read"};
    p += n;
    at += static_cast<std::size_t>(n);
    count -= static_cast<std::size_t>(n);
  }
  return {};
}

void OpenFile::expect(std::size_t at, std::size_t count) const {
  ::posix_fadvise(fd_, static_cast<off_t>(at), static_cast<off_t>(count), POSIX_FADV_WILLNEED);
}

}  // namespace firstlight
