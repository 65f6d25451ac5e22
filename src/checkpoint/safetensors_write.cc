#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
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

/// A file without a name, where the file system can, else under a temporary one beside its destination; gone
/// unless committed. Without a name it is gone also when the program is killed.
class PendingFile {
 public:
  explicit PendingFile(const std::string& path) : path_(path) {}
  ~PendingFile() {
    if (fd_ < 0) return;
    ::close(fd_);
    if (named_ && !committed_) ::unlink(temporary_.c_str());
  }
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;

  /// An Error also when the disk has not room for `bytes`.
  Status create(std::int64_t bytes) {
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

  [[nodiscard]] Status write(std::int64_t at, const void* data, std::size_t bytes) const {
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

  Status commit() {
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

 private:
  [[nodiscard]] Status failed(const char* what) const {
    return Error{temporary_ + ": cannot " + what + ": " + system_error_text(errno)};
  }

  std::string path_;
  std::string temporary_;
  int fd_ = -1;
  bool named_ = false;
  bool committed_ = false;
};

/// The header text, padded so that data begins at a multiple of 8.
Result<std::string> header_text(const std::string& path, const std::vector<const NamedTensor*>& tensors,
                                const SafetensorsMetadata& metadata) {
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

struct SafetensorsWriter::State {
  explicit State(const std::string& path) : file(path) {}
  PendingFile file;
  std::string head;                 // all before the data: the header and its length
  std::vector<std::int64_t> begin;  // by tensor: where its bytes are in the file
  std::vector<std::int64_t> bytes;
  std::atomic<std::int64_t> missing = 0;
};

SafetensorsWriter::SafetensorsWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&& other) noexcept = default;
SafetensorsWriter::~SafetensorsWriter() = default;

Result<SafetensorsWriter> SafetensorsWriter::create(const std::string& path,
                                                    const std::vector<NamedTensor>& tensors,
                                                    const SafetensorsMetadata& metadata) {
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

  auto state = std::make_unique<State>(path);
  state->begin.resize(tensors.size());
  state->bytes.resize(tensors.size());
  auto end = static_cast<std::int64_t>(sizeof(std::uint64_t) + header.size());
  for (const NamedTensor* t : order) {
    const auto i = static_cast<std::size_t>(t - tensors.data());
    state->begin[i] = end;
    state->bytes[i] = t->view.bytes();
    state->missing += state->bytes[i];
    end += state->bytes[i];
  }
  FL_TRY(state->file.create(end));
  const std::uint64_t length = header.size();
  state->head.assign(reinterpret_cast<const char*>(&length), sizeof(length));
  state->head += header;
  FL_TRY(state->file.write(0, state->head.data(), state->head.size()));
  return SafetensorsWriter(std::move(state));
}

Status SafetensorsWriter::write(std::size_t tensor, std::int64_t at, const void* data, std::int64_t count) {
  check(at >= 0 && count >= 0 && at <= state_->bytes[tensor] - count, "bytes within the tensor");
  state_->missing -= count;
  return state_->file.write(state_->begin[tensor] + at, data, static_cast<std::size_t>(count));
}

std::string_view SafetensorsWriter::head() const { return state_->head; }

Status SafetensorsWriter::commit() {
  check(state_->missing == 0, "every byte of a safetensors file written once");
  return state_->file.commit();
}

Status write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                         const SafetensorsMetadata& metadata) {
  FL_ASSIGN(SafetensorsWriter file, SafetensorsWriter::create(path, tensors, metadata));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    FL_TRY(file.write(i, 0, tensors[i].view.data, tensors[i].view.bytes()));
  }
  return file.commit();
}

}  // namespace firstlight
