#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <numeric>
#include <set>
#include <string_view>

#include "base/json_limits.h"
#include "checkpoint/safetensors.h"

namespace firstlight {

namespace {

/// A file under a temporary name beside its destination; gone unless committed.
class PendingFile {
 public:
  explicit PendingFile(const std::string& path) : path_(path) {}
  ~PendingFile() {
    if (fd_ < 0) return;
    ::close(fd_);
    if (!committed_) ::unlink(temporary_.c_str());
  }
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;

  Status create() {
    // A link is followed, so that the file it leads to is replaced; anything that is no file is left alone.
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
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return fd_ < 0 ? failed("be created") : Status();
  }

  Status write(const void* data, std::size_t bytes) {
    const char* p = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t n = ::write(fd_, p, bytes);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return failed("be written");
      p += n;
      bytes -= static_cast<std::size_t>(n);
    }
    return {};
  }

  Status commit() {
    if (::fsync(fd_) != 0) return failed("be written");
    if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
      return Error{path_ + ": cannot be replaced: " + system_error_text(errno)};
    }
    committed_ = true;
    return {};
  }

 private:
  [[nodiscard]] Status failed(const char* what) const {
    return Error{temporary_ + ": cannot " + what + ": " + system_error_text(errno)};
  }

  std::string path_;
  std::string temporary_;
  int fd_ = -1;
  bool committed_ = false;
};

/// The header text, padded so that data begins at a multiple of 8.
Result<std::string> header_text(const std::string& path, const std::vector<const NamedTensor*>& tensors,
                                const std::vector<std::pair<std::string, std::string>>& metadata) {
  // The names were checked to be distinct, so members go straight to the end of the object.
  nlohmann::ordered_json::object_t header;
  if (!metadata.empty()) {
    nlohmann::ordered_json strings = nlohmann::ordered_json::object();
    for (const auto& [name, value] : metadata) strings[name] = value;
    header.emplace_back("__metadata__", std::move(strings));
  }
  std::int64_t end = 0;
  for (const NamedTensor* t : tensors) {
    const std::int64_t begin = end;
    end += t->view.bytes();
    nlohmann::ordered_json entry;
    entry["dtype"] = dtype_name(t->view.dtype);
    entry["shape"] = t->view.shape;
    entry["data_offsets"] = {begin, end};
    header.emplace_back(t->name, std::move(entry));
  }
  std::string text;
  try {
    text = nlohmann::ordered_json(std::move(header)).dump();
  } catch (const nlohmann::json::exception&) {
    return Error{path + ": a tensor name or a metadata entry is not valid UTF-8"};
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

Status write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                         const std::vector<std::pair<std::string, std::string>>& metadata) {
  std::set<std::string_view> names = {"__metadata__"};
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& t : tensors) {
    if (!names.insert(t.name).second) return Error{path + ": tensor name " + quote_text(t.name) + " twice"};
    order.push_back(&t);
  }
  std::stable_sort(order.begin(), order.end(), [](const NamedTensor* a, const NamedTensor* b) {
    return dtype_size(a->view.dtype) > dtype_size(b->view.dtype);
  });
  FL_ASSIGN(const std::string header, header_text(path, order, metadata));

  PendingFile file(path);
  FL_TRY(file.create());
  const std::uint64_t length = header.size();
  FL_TRY(file.write(&length, sizeof(length)));
  FL_TRY(file.write(header.data(), header.size()));
  for (const NamedTensor* t : order) {
    FL_TRY(file.write(t->view.data, static_cast<std::size_t>(t->view.bytes())));
  }
  return file.commit();
}

}  // namespace firstlight
