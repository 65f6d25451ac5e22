#include "base/mapped_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <string_view>
#include <utility>

namespace firstlight {

namespace {

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

/// A mapping in use, for the signal handler. Entries are never freed: those out of use (size 0) are taken
/// again.
struct Mapping {
  std::atomic<const std::uint8_t*> data{nullptr};
  std::atomic<std::size_t> size{0};
  std::string path;  // written before size, while no fault can point into the mapping
  Mapping* next = nullptr;
};
std::atomic<Mapping*> mappings{nullptr};
std::mutex mappings_lock;

Mapping* remember(const std::string& path, const std::uint8_t* data, std::size_t size) {
  const std::scoped_lock lock(mappings_lock);
  Mapping* entry = mappings;
  while (entry != nullptr && entry->size != 0) entry = entry->next;
  if (entry == nullptr) {
    entry = new Mapping();
    entry->next = mappings;
    mappings = entry;
  }
  entry->path = path;
  entry->data = data;
  entry->size = size;
  return entry;
}

/// Only what a signal handler may call.
void write_text(std::string_view text) {
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
}

void handle_bus_error(int signal, siginfo_t* info, void* /*context*/) {
  const auto* const at = static_cast<const std::uint8_t*>(info->si_addr);
  for (const Mapping* m = mappings; m != nullptr; m = m->next) {
    const std::uint8_t* const data = m->data;
    if (at < data || at >= data + m->size) continue;
    write_text("\nerror: ");
    write_text(m->path);
    write_text(": shrank, or could not be read, while it was in use\n");
    ::_exit(1);
  }
  ::signal(signal, SIG_DFL);  // not ours: the instruction faults again
}

}  // namespace

void guard_mapped_files() {
  struct sigaction action {};
  action.sa_sigaction = handle_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, nullptr);
}

bool name_is_taken(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  FL_ASSIGN(const OpenFile file, OpenFile::open(path));
  return map(file);
}

Result<MappedFile> MappedFile::map(const OpenFile& file) {
  const std::string& path = file.path();
  MappedFile mapped;
  mapped.path_ = path;
  mapped.modified_ = file.modified();
  if (file.size() == 0) return mapped;  // mmap refuses length 0
  void* const address = ::mmap(nullptr, file.size(), PROT_READ, MAP_PRIVATE, file.fd(), 0);
  if (address == MAP_FAILED) return Error{path + ": cannot be mapped: " + system_error_text(errno)};
  mapped.data_ = static_cast<const std::uint8_t*>(address);
  mapped.size_ = file.size();
  mapped.entry_ = remember(path, mapped.data_, mapped.size_);
  return mapped;
}

MappedFile::~MappedFile() { unmap(); }

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      modified_(other.modified_),
      entry_(std::exchange(other.entry_, nullptr)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    unmap();
    path_ = std::move(other.path_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    modified_ = other.modified_;
    entry_ = std::exchange(other.entry_, nullptr);
  }
  return *this;
}

void MappedFile::unmap() {
  if (entry_ != nullptr) static_cast<Mapping*>(entry_)->size = 0;
  entry_ = nullptr;
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
