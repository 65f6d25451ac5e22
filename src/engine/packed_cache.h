// Packed weights kept on the disk from one start to the next (docs/decisions/0008-packed-cache.md). Whatever
// is wrong with the file, or with writing it, costs time and one notice, never the load.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "checkpoint/packed_file.h"
#include "device/cpu/packed_store.h"

namespace firstlight {

/// Where packed weights are kept, and when.
struct KeepPacked {
  enum class When : std::uint8_t {
    kNever,
    kIfItPays,  // a first load writes them when they are large, and clearly smaller than what they come from
    kAlways
  };
  When when = When::kNever;
  std::string folder = {};  // empty: the checkpoint's
};

/// The file for a checkpoint and a form (packed_key.h): "firstlight-int8.packed" in the checkpoint's folder;
/// in a folder that others may share, the checkpoint's name and a digest of where it lies come before the
/// form.
std::string packed_path(const KeepPacked& keep, const std::string& checkpoint_folder,
                        const std::string& form);

/// Whether a file has such a name: it belongs to the checkpoint that it lies beside, and not to copies.
bool is_packed_name(std::string_view name);

class PackedCache final : public PackedStore {
 public:
  /// Opens `path`, if there is such a file. Matrices are read from it when it was written for `key`.
  PackedCache(std::string path, std::string key, ThreadPool& pool);

  bool restore(const std::string& name, const std::shared_ptr<std::byte>& data, std::int64_t bytes) override;

  /// Bytes of all matrices that were asked for.
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  /// Whether the file is there and held just what was asked for.
  [[nodiscard]] bool complete() const;
  /// Writes what was asked for, all of it packed by now.
  void write(const std::function<void(std::int64_t done, std::int64_t total)>& progress);

  /// What people should know: why the file was not used, or not written.
  [[nodiscard]] const std::vector<std::string>& notices() const { return notices_; }

 private:
  void give_up(const std::string& why);

  struct Matrix {
    std::string name;
    std::shared_ptr<const std::byte> data;
    std::int64_t bytes = 0;
  };
  std::string path_;
  std::string key_;
  ThreadPool& pool_;
  std::optional<PackedFile> file_;  // while it can be trusted
  std::vector<Matrix> matrices_;    // in the order in which they were asked for, once each
  std::set<std::string, std::less<>> names_;
  std::int64_t bytes_ = 0;
  std::vector<std::string> notices_;
};

}  // namespace firstlight
