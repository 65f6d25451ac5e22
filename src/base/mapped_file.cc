#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

namespace firstlight {

namespace {

/// An open descriptor of a regular file and the size it had then.
class OpenFile {
 public:
  static Result<OpenFile> open(const std::string& path) {
    // O_NONBLOCK: opening a pipe must not wait for a writer. It means nothing for regular files.
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return Error{path + ": cannot be opened: " + system_error_text(errno)};
    OpenFile file(fd);
    struct stat info {};
    if (::fstat(fd, &info) != 0) return Error{path + ": cannot be examined: " + system_error_text(errno)};
    if (S_ISDIR(info.st_mode)) return Error{path + ": is a folder, expected a file"};
    if (!S_ISREG(info.st_mode)) return Error{path + ": is not a regular file"};
    file.size_ = static_cast<std::size_t>(info.st_size);
    return file;
  }
  ~OpenFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  OpenFile(OpenFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  OpenFile& operator=(OpenFile&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(size_, other.size_);
    return *this;
  }

  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  explicit OpenFile(int fd) : fd_(fd) {}
  int fd_;
  std::size_t size_ = 0;
};

int system_advice(MappedFile::Advice advice) {
  switch (advice) {
    case MappedFile::Advice::kNormal:
      return MADV_NORMAL;
    case MappedFile::Advice::kSequential:
      return MADV_SEQUENTIAL;
    case MappedFile::Advice::kRandom:
      return MADV_RANDOM;
    case MappedFile::Advice::kWillNeed:
      return MADV_WILLNEED;
    case MappedFile::Advice::kDontNeed:
      return MADV_DONTNEED;
  }
  return MADV_NORMAL;
}

}  // namespace

std::string system_error_text(int error_number) { return std::generic_category().message(error_number); }

Result<MappedFile> MappedFile::open(const std::string& path) {
  FL_ASSIGN(OpenFile file, OpenFile::open(path));
  MappedFile mapped;
  mapped.path_ = path;
  if (file.size() == 0) return mapped;  // mmap refuses length 0
  void* const address = ::mmap(nullptr, file.size(), PROT_READ, MAP_PRIVATE, file.fd(), 0);
  if (address == MAP_FAILED) return Error{path + ": cannot be mapped: " + system_error_text(errno)};
  mapped.data_ = static_cast<const std::uint8_t*>(address);
  mapped.size_ = file.size();
  return mapped;
}

MappedFile::~MappedFile() { unmap(); }

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    unmap();
    path_ = std::move(other.path_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

void MappedFile::unmap() {
  if (data_ != nullptr) ::munmap(const_cast<std::uint8_t*>(data_), size_);
  data_ = nullptr;
  size_ = 0;
}

void MappedFile::advise(Advice advice, std::size_t offset, std::size_t length) const {
  if (offset >= size_) return;
  length = std::min(length, size_ - offset);
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t begin = offset / page * page;  // madvise wants a page boundary
  ::madvise(const_cast<std::uint8_t*>(data_) + begin, offset - begin + length, system_advice(advice));
}

Result<std::string> read_file(const std::string& path, std::size_t max_bytes) {
  FL_ASSIGN(OpenFile file, OpenFile::open(path));
  if (file.size() > max_bytes) {
    return Error{path + ": has " + std::to_string(file.size()) + " bytes, at most " +
                 std::to_string(max_bytes) + " are accepted"};
  }
  std::string text(file.size(), '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::read(file.fd(), text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error{path + ": cannot be read: " + system_error_text(errno)};
    if (n == 0) break;  // shrank since it was opened
    done += static_cast<std::size_t>(n);
  }
  text.resize(done);
  return text;
}

}  // namespace firstlight
