// Files that appear whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"

namespace firstlight {

/// A file without a name, where the file system can, else under a temporary one beside its destination; gone
/// unless committed. Without a name it is gone also when the program is killed. What was at the destination
/// stays until then.
class PendingFile {
 public:
  explicit PendingFile(const std::string& path) : path_(path) {}
  ~PendingFile();
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;

  /// A link is followed, so that the file it leads to is replaced, and the new one gets its mode; anything
  /// else that is no file, an open file that a link of /proc leads to, and a file that may not be replaced
  /// are left alone, an Error. So is a disk that has not room for `bytes`.
  Status create(std::int64_t bytes);
  Status write(std::int64_t at, const void* data, std::size_t bytes) const;
  Status commit();

  /// Whether a file could be put there now. Leaves nothing.
  static Status possible(const std::string& path) { return PendingFile(path).create(0); }

 private:
  Status look_in(const std::string& folder);
  [[nodiscard]] Status failed(const char* what) const;

  std::string path_;
  std::string temporary_;
  int fd_ = -1;
  int mode_ = -1;  // of the file that stands there; -1: none does
  bool named_ = false;
  bool committed_ = false;
};

}  // namespace firstlight
