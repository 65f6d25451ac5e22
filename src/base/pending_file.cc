#include "base/pending_file.h"

#include <fcntl.h>
#include <sys/stat.h>
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

/// What stands at the destination now could be replaced by a rename. Else that would fail, but only when the
/// new file is complete.
Status PendingFile::look_in(const std::string& folder) {
  struct statx there {};
  if (::statx(AT_FDCWD, path_.c_str(), AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_MNT_ID, &there) != 0) {
    return errno == ENOENT ? Status() : failed("be created");
  }
  if (!S_ISREG(there.stx_mode)) return Error{path_ + ": is not a regular file, and is not replaced"};
  mode_ = there.stx_mode & 07777;
  const auto refused = [&](int reason) {
    errno = reason;
    return failed("be replaced");
  };
  struct statx around {};
  if (::statx(AT_FDCWD, folder.c_str(), 0, STATX_BASIC_STATS | STATX_MNT_ID, &around) != 0) return {};
  if ((there.stx_mask & around.stx_mask & STATX_MNT_ID) != 0 && there.stx_mnt_id != around.stx_mnt_id) {
    return refused(EBUSY);
  }
  const uid_t user = ::geteuid();
  const bool others =
      (around.stx_mode & S_ISVTX) != 0 && user != 0 && user != there.stx_uid && user != around.stx_uid;
  constexpr std::uint64_t kFixed = STATX_ATTR_IMMUTABLE | STATX_ATTR_APPEND;
  return others || (there.stx_attributes & kFixed) != 0 ? refused(EPERM) : Status();
}

Status PendingFile::create(std::int64_t bytes) {
  std::error_code failure;
  std::filesystem::path target = path_;
  constexpr int kMostLinks = 40;  // as many as the kernel follows
  for (int links = 0; std::filesystem::is_symlink(target, failure); ++links) {
    if (links == kMostLinks) return Error{path_ + ": too many levels of symbolic links"};
    const std::filesystem::path parent =
        std::filesystem::weakly_canonical(std::filesystem::absolute(target).parent_path(), failure);
    if (parent.string().starts_with("/proc/")) {  // /dev/stdout: whoever opened that still writes to it
      return Error{path_ + ": leads to a file that is open, and is not replaced"};
    }
    target = target.parent_path() / std::filesystem::read_symlink(target, failure);
  }
  path_ = target.string();
  const std::string folder = target.has_parent_path() ? target.parent_path().string() : ".";
  FL_TRY(look_in(folder));
  constexpr std::size_t kMostName = 200;  // of the 255 bytes that a name may have
  temporary_ = (std::filesystem::path(folder) / target.filename().string().substr(0, kMostName)).string() +
               ".tmp-" + std::to_string(::getpid());
  if (::access("/proc/self/fd", X_OK) == 0) {
    fd_ = ::open(folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
  }
  if (fd_ < 0) {
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    named_ = fd_ >= 0;
  }
  if (fd_ < 0) return failed("be created");
  if (mode_ >= 0) ::fchmod(fd_, static_cast<mode_t>(mode_));  // a private file stays private
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
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) return failed("be replaced");
  committed_ = true;
  return {};
}

Status PendingFile::failed(const char* what) const {
  return Error{path_ + ": cannot " + what + ": " + system_error_text(errno)};
}

}  // namespace firstlight
