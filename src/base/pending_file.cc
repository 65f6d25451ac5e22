#include "base/pending_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "base/open_file.h"

namespace firstlight {

PendingFile::~PendingFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  if (named_ && !committed_) ::unlink(temporary_.c_str());
}

Status PendingFile::create(std::int64_t bytes) {
  std::error_code failure;
  std::filesystem::path target = path_;
  constexpr int kMostLinks = 40;  // as many as the kernel follows
  for (int links = 0; std::filesystem::is_symlink(target, failure); ++links) {
    if (links == kMostLinks) return Error{path_ + ": too many levels of symbolic links"};
    target = target.parent_path() / std::filesystem::read_symlink(target, failure);
  }
  const std::filesystem::file_status found = std::filesystem::status(target, failure);
  if (std::filesystem::exists(found) && !std::filesystem::is_regular_file(found)) {
    return Error{path_ + ": is not a regular file, and is not replaced"};
  }
  path_ = target.string();
  temporary_ = path_ + ".tmp-" + std::to_string(::getpid());
  const std::string folder = target.has_parent_path() ? target.parent_path().string() : ".";
  if (::access("/proc/self/fd", X_OK) == 0) {
    fd_ = ::open(folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
  }
  if (fd_ < 0) {
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    named_ = fd_ >= 0;
  }
  if (fd_ < 0) return failed("be created");
  // Not every file system can: then writing tells.
  return ::fallocate(fd_, 0, 0, bytes) != 0 && errno == ENOSPC ? failed("be written") : Status();
}

Status PendingFile::write(std::int64_t at, const void* data, std::size_t bytes) const {
  const char* p = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::pwrite(fd_, p, bytes, at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed("be written");
    p += n;
    at += n;
    bytes -= static_cast<std::size_t>(n);
  }
  return {};
}

Status PendingFile::commit() {
  if (::fsync(fd_) != 0) return failed("be written");
  if (!named_) {
    const std::string open_file = "/proc/self/fd/" + std::to_string(fd_);
    named_ = ::linkat(AT_FDCWD, open_file.c_str(), AT_FDCWD, temporary_.c_str(), AT_SYMLINK_FOLLOW) == 0;
    if (!named_) return failed("be created");
  }
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    return Error{path_ + ": cannot be replaced: " + system_error_text(errno)};
  }
  committed_ = true;
  return {};
}

Status PendingFile::failed(const char* what) const {
  return Error{path_ + ": cannot " + what + ": " + system_error_text(errno)};
}

}  // namespace firstlight
