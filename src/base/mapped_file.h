// Files seen as memory: a read-only mapping that lives as long as its object, and a bounded plain read for
// small text files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/open_file.h"
#include "base/result.h"

namespace firstlight {

/// A regular file mapped read-only. Moving keeps bytes() in place. Opening reads no data: pages come from the
/// disk when they are touched. Another process that truncates the file while it is mapped ends the reader
/// (SIGBUS); no check on our side can prevent that, guard_mapped_files() says what happened.
class MappedFile {
 public:
  enum class Advice { kNormal, kSequential, kRandom, kWillNeed, kDontNeed };

  static Result<MappedFile> open(const std::string& path);
  static Result<MappedFile> map(const OpenFile& file);

  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::span<const std::uint8_t> bytes() const { return {data_, size_}; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::int64_t modified() const { return modified_; }  // see OpenFile

  /// A hint about [offset, offset + length), cut to the file; the system may ignore it, so nothing is
  /// returned.
  void advise(Advice advice, std::size_t offset, std::size_t length) const;
  void advise(Advice advice) const { advise(advice, 0, size_); }

 private:
  void unmap();

  std::string path_;
  const std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
  std::int64_t modified_ = 0;
  void* entry_ = nullptr;  // of the list that guard_mapped_files() looks through
};

/// From now on, when a mapped file has shrunk or its disk fails, the program ends with exit code 1 and an
/// error that names the file, instead of by a signal without a word.
void guard_mapped_files();

/// Whether something has that name, be it a link that leads nowhere: opening it then says what is wrong. An
/// optional file is absent only when nothing has its name.
bool name_is_taken(const std::string& path);

/// The whole of a regular file; an Error if it is larger than `max_bytes`.
Result<std::string> read_file(const std::string& path, std::size_t max_bytes);

}  // namespace firstlight
