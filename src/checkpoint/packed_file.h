// Weights as kernels hold them, in a file: what a first load made of a checkpoint, for the next one. A
// safetensors file of U8 tensors, read by the strict parser of those; its last tensor holds checksums of all
// that is before it, its metadata the key: what the bytes were made from, in lines of text.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/open_file.h"
#include "base/result.h"
#include "base/thread_pool.h"

namespace firstlight {

/// A matrix's bytes; not empty.
struct PackedBytes {
  std::string name;
  const std::byte* data = nullptr;
  std::int64_t bytes = 0;
};

/// What a header says, every place checked against the file's size.
struct PackedIndex {
  struct Entry {
    std::int64_t at = 0;  // in the file
    std::int64_t bytes = 0;
    std::int64_t first_block = 0;  // index of the checksum of its first block
  };
  std::string key;
  std::map<std::string, Entry, std::less<>> entries;
  std::int64_t head_bytes = 0;           // before the data
  std::vector<std::uint64_t> checksums;  // of the head, then of the blocks of each entry
};

/// `file` is the whole of it; only the header and the checksums are read. `path` is for messages.
Result<PackedIndex> parse_packed_index(std::span<const std::uint8_t> file, const std::string& path);

/// An open file whose header is as it was written.
class PackedFile {
 public:
  static Result<PackedFile> open(const std::string& path);

  [[nodiscard]] const std::string& path() const { return file_.path(); }
  [[nodiscard]] const std::string& key() const { return index_.key; }
  [[nodiscard]] std::size_t entries() const { return index_.entries.size(); }
  /// Bytes of an entry, 0 when there is none.
  [[nodiscard]] std::int64_t bytes_of(std::string_view name) const;
  /// All bytes of an entry that exists, on all threads; an Error when they are not those that were written.
  Status read(std::string_view name, std::byte* to, ThreadPool& pool) const;

 private:
  PackedFile(OpenFile file, PackedIndex index) : file_(std::move(file)), index_(std::move(index)) {}
  OpenFile file_;
  PackedIndex index_;
};

/// The file appears under its name when it is complete and on the disk, or not at all. Names must differ.
/// `progress` gets the bytes written so far, on the calling thread.
Status write_packed_file(const std::string& path, const std::string& key,
                         std::span<const PackedBytes> entries, ThreadPool& pool,
                         const std::function<void(std::int64_t done)>& progress);

}  // namespace firstlight
