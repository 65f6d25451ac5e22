#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <utility>

#include "base/json_limits.h"
#include "checkpoint/folder_listing.h"
#include "checkpoint/problem_list.h"
#include "checkpoint/shard_index.h"

namespace firstlight {

namespace {

/// Where index and shards disagree. Tensors of files that could not be opened are not judged.
std::string disagreements(const Checkpoint& checkpoint, const ShardIndex& index,
                          const std::vector<bool>& opened) {
  ProblemList absent("tensors listed in the index but not in their file");
  ProblemList unlisted("tensors that the index does not list");
  const auto entries = checkpoint.entries();
  std::size_t i = 0;
  for (const ShardIndex::Entry& listed : index.entries) {
    for (; i < entries.size() && entries[i].name < listed.tensor; ++i) {
      unlisted.add(quote_text(entries[i].name) + " in " + checkpoint.file_of(entries[i]));
    }
    const std::string& file = index.files[listed.file];
    const bool found = i < entries.size() && entries[i].name == listed.tensor;
    if (!found) {
      if (opened[listed.file]) absent.add(quote_text(listed.tensor) + " in " + quote_text(file));
      continue;
    }
    if (checkpoint.file_of(entries[i]) != file) {
      absent.add(quote_text(listed.tensor) + " in " + quote_text(file) + " (it is in " +
                 checkpoint.file_of(entries[i]) + ")");
    }
    ++i;
  }
  for (; i < entries.size(); ++i) {
    unlisted.add(quote_text(entries[i].name) + " in " + checkpoint.file_of(entries[i]));
  }
  return absent.line() + unlisted.line();
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::string& folder) {
  FL_ASSIGN(const FolderListing listing, list_checkpoint_folder(folder));
  ShardIndex index;
  if (listing.has_index) {
    const std::string path = folder + "/" + kIndexName;
    FL_ASSIGN(const std::string text, read_file(path, kMaxIndexBytes));
    FL_ASSIGN(index, parse_shard_index(text, path));
  }
  const std::vector<std::string>& names = listing.has_index ? index.files : listing.shards;

  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  ProblemList broken("files that cannot be used");
  ProblemList extra("weight files that the index does not list");
  std::vector<bool> opened;
  for (const std::string& name : names) {
    const Status status = checkpoint.add_file(name);
    opened.push_back(status.ok());
    if (status.ok()) continue;
    if (names.size() == 1) return status.error();
    broken.add(status.error().message);
  }
  for (const std::string& name : listing.shards) {
    if (!std::binary_search(names.begin(), names.end(), name)) extra.add(name);
  }
  std::string problems = broken.line() + extra.line();
  const Status sorted = checkpoint.sort_entries();
  if (!sorted) problems += sorted.error().message;
  if (listing.has_index) problems += disagreements(checkpoint, index, opened);
  if (!problems.empty()) return Error{folder + ": the checkpoint is incomplete or inconsistent:" + problems};
  for (const std::string& name : listing.others) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    checkpoint.notices_.push_back(quote_text(name) + " is not part of the checkpoint and is not read");
  }
  return checkpoint;
}

Status Checkpoint::add_file(const std::string& name) {
  FL_ASSIGN(SafetensorsFile opened, open_safetensors(folder_ + "/" + name));
  add_content(std::move(opened.content), name);
  files_.push_back(std::move(opened.file));
  return {};
}

void Checkpoint::add_content(SafetensorsContent content, const std::string& name) {
  const auto file = static_cast<std::uint32_t>(file_names_.size());
  for (NamedTensor& t : content.tensors) {
    total_bytes_ += t.view.bytes();
    entries_.push_back({std::move(t.name), std::move(t.view), file});
  }
  file_names_.push_back(name);
}

Result<Checkpoint> Checkpoint::in_memory(std::span<const std::uint8_t> file, const std::string& name) {
  FL_ASSIGN(SafetensorsContent content, parse_safetensors(file, name));
  Checkpoint checkpoint;
  checkpoint.folder_ = name;
  checkpoint.add_content(std::move(content), name);
  FL_TRY(checkpoint.sort_entries());
  return checkpoint;
}

void Checkpoint::release(std::span<const std::uint8_t> bytes) const {
  for (const MappedFile& file : files_) {
    const std::span<const std::uint8_t> all = file.bytes();
    if (bytes.data() < all.data() || bytes.data() >= all.data() + all.size()) continue;
    file.advise(MappedFile::Advice::kDontNeed, static_cast<std::size_t>(bytes.data() - all.data()),
                bytes.size());
  }
}

Status Checkpoint::sort_entries() {
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return std::pair<const std::string&, std::uint32_t>(a.name, a.file) <
           std::pair<const std::string&, std::uint32_t>(b.name, b.file);
  });
  ProblemList twice("tensors that two files hold");
  for (std::size_t i = 1; i < entries_.size(); ++i) {
    if (entries_[i - 1].name != entries_[i].name) continue;
    twice.add(quote_text(entries_[i].name) + " in " + file_of(entries_[i - 1]) + " and " +
              file_of(entries_[i]));
  }
  return twice.count() == 0 ? Status() : Error{twice.line()};
}

std::optional<std::size_t> Checkpoint::index_of(std::string_view name) const {
  const auto it = std::lower_bound(entries_.begin(), entries_.end(), name,
                                   [](const Entry& e, std::string_view n) { return e.name < n; });
  if (it == entries_.end() || it->name != name) return std::nullopt;
  return static_cast<std::size_t>(it - entries_.begin());
}

const TensorView* Checkpoint::find(std::string_view name) const {
  const auto index = index_of(name);
  return index ? &entries_[*index].view : nullptr;
}

}  // namespace firstlight
