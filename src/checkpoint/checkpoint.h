// A checkpoint folder: every tensor of its safetensors files, by name.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/tensor.h"
#include "checkpoint/safetensors.h"

namespace firstlight {

class Checkpoint {
 public:
  struct Entry {
    std::string name;
    TensorView view;  // into the mapped file
    std::uint32_t file = 0;
  };

  /// Opens one model.safetensors, or shards with an index, or a complete set of numbered shards without one.
  /// Reads headers only. The index and the shards must agree exactly; all disagreements are in the one Error.
  static Result<Checkpoint> open(const std::string& folder);

  /// One safetensors file that lies in memory, which must outlive this. `name` is for messages.
  static Result<Checkpoint> in_memory(std::span<const std::uint8_t> file, const std::string& name);

  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] std::span<const Entry> entries() const { return entries_; }  // sorted by name
  [[nodiscard]] std::optional<std::size_t> index_of(std::string_view name) const;
  [[nodiscard]] const TensorView* find(std::string_view name) const;
  /// The name, within the folder, of the file that holds the entry.
  [[nodiscard]] const std::string& file_of(const Entry& entry) const { return file_names_[entry.file]; }
  [[nodiscard]] std::span<const MappedFile> files() const { return files_; }
  [[nodiscard]] std::int64_t total_bytes() const { return total_bytes_; }

  /// Safetensors files of the folder that are not part of the checkpoint (copies in other layouts, adapters),
  /// if any: one sentence each.
  [[nodiscard]] const std::vector<std::string>& notices() const { return notices_; }

  /// These bytes of a tensor will not be read again soon: their pages may leave this process. They come back
  /// from the file when they are touched.
  void release(std::span<const std::uint8_t> bytes) const;

 private:
  Status add_file(const std::string& name);
  void add_content(SafetensorsContent content, const std::string& name);
  [[nodiscard]] Status sort_entries();

  std::string folder_;
  std::vector<std::string> file_names_;
  std::vector<MappedFile> files_;
  std::vector<Entry> entries_;
  std::int64_t total_bytes_ = 0;
  std::vector<std::string> notices_;
};

}  // namespace firstlight
