#include "engine/packed_cache.h"

#include <xxhash.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/mapped_file.h"
#include "base/memory_limit.h"
#include "engine/packed_key.h"

namespace firstlight {

namespace {
constexpr std::string_view kBegin = "firstlight-";
constexpr std::string_view kEnding = ".packed";
}  // namespace

bool is_packed_name(std::string_view name) {
  return name.find(kBegin) != std::string_view::npos && name.ends_with(kEnding);
}

std::string packed_path(const KeepPacked& keep, const std::string& checkpoint_folder,
                        const std::string& form) {
  const std::string name = std::string(kBegin) + form + std::string(kEnding);
  if (keep.folder.empty()) return checkpoint_folder + "/" + name;
  std::error_code failure;
  std::filesystem::path whole = std::filesystem::weakly_canonical(checkpoint_folder, failure);
  if (failure) whole = checkpoint_folder;
  const std::string text = whole.string();
  std::array<char, 17> digest{};
  std::snprintf(digest.data(), digest.size(), "%016llx",
                static_cast<unsigned long long>(XXH3_64bits(text.data(), text.size())));
  return keep.folder + "/" + whole.filename().string() + "-" + digest.data() + "-" + name;
}

PackedCache::PackedCache(std::string path, std::string key, ThreadPool& pool)
    : path_(std::move(path)), key_(std::move(key)), pool_(pool) {
  if (!name_is_taken(path_)) return;
  Result<PackedFile> opened = PackedFile::open(path_);
  if (!opened.ok()) {
    give_up(opened.error().message);
  } else if (const auto other = difference(opened->key(), key_)) {
    give_up(path_ + ": was made from something else: " + *other);
  } else {
    file_.emplace(std::move(*opened));
  }
}

void PackedCache::give_up(const std::string& why) {
  file_.reset();
  notices_.push_back("packed weights are not taken from " + why);
}

bool PackedCache::restore(const std::string& name, const std::shared_ptr<std::byte>& data,
                          std::int64_t bytes) {
  if (names_.insert(name).second) {
    matrices_.push_back({name, data, bytes});
    bytes_ += bytes;
  }
  if (!file_) return false;
  if (const std::int64_t kept = file_->bytes_of(name); kept != bytes) {
    give_up(path_ + ": it has " + std::to_string(kept) + " bytes of " + name + ", " + std::to_string(bytes) +
            " are needed");
    return false;
  }
  if (const Status read = file_->read(name, data.get(), pool_); !read.ok()) {
    give_up(read.error().message);
    std::memset(data.get(), 0, static_cast<std::size_t>(bytes));
    return false;
  }
  return true;
}

bool PackedCache::complete() const { return file_ && file_->entries() == matrices_.size(); }

void PackedCache::write(const std::function<void(std::int64_t done, std::int64_t total)>& progress) {
  // The file is ours by its name; what a link points to need not be.
  std::error_code failure;
  if (std::filesystem::is_symlink(path_, failure)) {
    notices_.push_back("packed weights are not kept: " + path_ + ": is a link, and is not written through");
    return;
  }
  std::vector<PackedBytes> entries;
  for (const Matrix& m : matrices_) entries.push_back({m.name, m.data.get(), m.bytes});
  auto shown = std::chrono::steady_clock::now();
  const Status written = write_packed_file(path_, key_, entries, pool_, [&](std::int64_t done) {
    const auto now = std::chrono::steady_clock::now();
    if (!progress || now - shown < std::chrono::milliseconds(200)) return;
    shown = now;
    progress(done, bytes_);
  });
  notices_.push_back(written.ok()
                         ? path_ + ": " + bytes_text(bytes_) + " of packed weights for the next start"
                         : "packed weights are not kept: " + written.error().message);
}

}  // namespace firstlight
