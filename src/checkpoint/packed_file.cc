#include "checkpoint/packed_file.h"

#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/json_limits.h"
#include "base/mapped_file.h"
#include "checkpoint/safetensors.h"

namespace firstlight {

namespace {

constexpr std::string_view kFormat = "firstlight packed weights";
constexpr std::string_view kVersion = "1";
constexpr std::string_view kChecksums = "checksums";
/// What has a checksum of its own: threads share a matrix in such pieces, and a core's cache holds one while
/// it is hashed. Part of the format.
constexpr std::int64_t kBlock = std::int64_t{1} << 18;
/// How far ahead of what is being read the system is asked to read.
constexpr std::int64_t kAhead = std::int64_t{1} << 25;

std::int64_t blocks_of(std::int64_t bytes) { return (bytes + kBlock - 1) / kBlock; }

std::uint64_t checksum(const void* data, std::size_t bytes) { return XXH3_64bits(data, bytes); }

/// The first failure of several threads.
class Failure {
 public:
  [[nodiscard]] bool none() const { return !failed_; }
  void keep(Status status) {
    if (status.ok()) return;
    const std::lock_guard lock(mutex_);
    if (!failed_.exchange(true)) status_ = std::move(status);
  }
  [[nodiscard]] Status status() const { return status_; }

 private:
  std::mutex mutex_;
  std::atomic<bool> failed_ = false;
  Status status_;
};

Result<std::string> metadata_of(const SafetensorsContent& content, std::string_view name,
                                const std::string& path) {
  for (const auto& [key, value] : content.metadata) {
    if (key == name) return value;
  }
  return Error{path + ": has no \"" + std::string(name) + "\" in its metadata: not packed weights"};
}

}  // namespace

Result<PackedIndex> parse_packed_index(std::span<const std::uint8_t> file, const std::string& path) {
  FL_ASSIGN(const SafetensorsContent content, parse_safetensors(file, path));
  FL_ASSIGN(const std::string format, metadata_of(content, "format", path));
  FL_ASSIGN(const std::string version, metadata_of(content, "version", path));
  if (format != kFormat)
    return Error{path + ": has the format " + quote_text(format) + ", not packed weights"};
  if (version != kVersion) {
    return Error{path + ": is of version " + quote_text(version) + ", this program reads version " +
                 std::string(kVersion)};
  }
  PackedIndex index;
  FL_ASSIGN(index.key, metadata_of(content, "key", path));
  if (content.tensors.empty() || content.tensors.back().name != kChecksums) {
    return Error{path + ": its last tensor is not \"" + std::string(kChecksums) + "\""};
  }
  std::int64_t block = 1;  // the first checksum is the head's
  for (const NamedTensor& t : content.tensors) {
    if (t.view.dtype != DType::kU8 || t.view.bytes() == 0) {
      return Error{path + ": tensor " + quote_text(t.name) + " is empty, or not of type U8"};
    }
    if (&t == &content.tensors.back()) break;
    index.entries[t.name] = {.at = t.view.data - file.data(), .bytes = t.view.bytes(), .first_block = block};
    block += blocks_of(t.view.bytes());
  }
  const TensorView& sums = content.tensors.back().view;
  if (sums.bytes() != block * static_cast<std::int64_t>(sizeof(std::uint64_t))) {
    return Error{path + ": has " + std::to_string(sums.bytes()) + " bytes of checksums, its tensors need " +
                 std::to_string(block * static_cast<std::int64_t>(sizeof(std::uint64_t)))};
  }
  index.checksums.resize(static_cast<std::size_t>(block));
  std::memcpy(index.checksums.data(), sums.data, static_cast<std::size_t>(sums.bytes()));
  index.head_bytes = content.tensors.front().view.data - file.data();
  return index;
}

Result<PackedFile> PackedFile::open(const std::string& path) {
  FL_ASSIGN(OpenFile file, OpenFile::open(path));
  FL_ASSIGN(const MappedFile mapped, MappedFile::map(file));
  FL_ASSIGN(PackedIndex index, parse_packed_index(mapped.bytes(), path));
  if (checksum(mapped.bytes().data(), static_cast<std::size_t>(index.head_bytes)) != index.checksums[0]) {
    return Error{path + ": is damaged: the header is not the one that was written"};
  }
  return PackedFile(std::move(file), std::move(index));
}

std::int64_t PackedFile::bytes_of(std::string_view name) const {
  const auto found = index_.entries.find(name);
  return found == index_.entries.end() ? 0 : found->second.bytes;
}

Status PackedFile::read(std::string_view name, std::byte* to, ThreadPool& pool) const {
  const PackedIndex::Entry& entry = index_.entries.find(name)->second;
  // Matrices are asked for in the order in which they were written: the end of the window that is read ahead
  // moves on by what is read now.
  const bool first = entry.first_block == 1;
  file_.expect(static_cast<std::size_t>(entry.at + (first ? 0 : kAhead)),
               static_cast<std::size_t>(entry.bytes + (first ? kAhead : 0)));
  const std::int64_t blocks = blocks_of(entry.bytes);
  std::atomic<std::int64_t> next = 0;  // in the order of the disk, whichever thread is free
  Failure failure;
  pool.run([&](int /*thread*/) {
    for (std::int64_t b = next++; b < blocks && failure.none(); b = next++) {
      const std::int64_t begin = b * kBlock;
      const auto count = static_cast<std::size_t>(std::min(kBlock, entry.bytes - begin));
      const std::int64_t at = entry.at + begin;
      Status read = file_.read(static_cast<std::size_t>(at), to + begin, count);
      if (read.ok() &&
          checksum(to + begin, count) != index_.checksums[static_cast<std::size_t>(entry.first_block + b)]) {
        read = Error{path() + ": is damaged between bytes " + std::to_string(at) + " and " +
                     std::to_string(at + static_cast<std::int64_t>(count))};
      }
      failure.keep(std::move(read));
    }
  });
  return failure.status();
}

Status write_packed_file(const std::string& path, const std::string& key,
                         std::span<const PackedBytes> entries, ThreadPool& pool,
                         const std::function<void(std::int64_t done)>& progress) {
  struct Block {
    std::size_t entry;
    std::int64_t begin;
  };
  std::vector<Block> blocks;
  std::vector<NamedTensor> tensors;
  for (std::size_t e = 0; e < entries.size(); ++e) {
    check(entries[e].bytes > 0, "packed weights have bytes");
    tensors.push_back({entries[e].name, {DType::kU8, {entries[e].bytes}, nullptr}});
    for (std::int64_t at = 0; at < entries[e].bytes; at += kBlock) blocks.push_back({e, at});
  }
  std::vector<std::uint64_t> sums(blocks.size() + 1);
  const auto sum_bytes = static_cast<std::int64_t>(sums.size() * sizeof(std::uint64_t));
  tensors.push_back({std::string(kChecksums), {DType::kU8, {sum_bytes}, nullptr}});
  FL_ASSIGN(SafetensorsWriter file,
            SafetensorsWriter::create(
                path, tensors,
                {{"format", std::string(kFormat)}, {"version", std::string(kVersion)}, {"key", key}}));
  sums[0] = checksum(file.head().data(), file.head().size());

  std::atomic<std::size_t> next = 0;
  std::atomic<std::int64_t> done = 0;
  Failure failure;
  pool.run([&](int thread) {
    for (std::size_t b = next++; b < blocks.size() && failure.none(); b = next++) {
      const PackedBytes& entry = entries[blocks[b].entry];
      const std::byte* const data = entry.data + blocks[b].begin;
      const std::int64_t count = std::min(kBlock, entry.bytes - blocks[b].begin);
      sums[b + 1] = checksum(data, static_cast<std::size_t>(count));
      failure.keep(file.write(blocks[b].entry, blocks[b].begin, data, count));
      done += count;
      if (thread == 0 && progress) progress(done);
    }
  });
  FL_TRY(failure.status());
  FL_TRY(file.write(entries.size(), 0, sums.data(), sum_bytes));
  return file.commit();
}

}  // namespace firstlight
