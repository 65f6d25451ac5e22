#include "checkpoint/folder_listing.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "base/json_limits.h"
#include "checkpoint/problem_list.h"

namespace firstlight {

namespace {

constexpr std::string_view kSingleName = "model.safetensors";
// Weights that this program does not read, by the usual endings.
constexpr std::array<std::string_view, 8> kForeignEndings = {".bin",  ".pt", ".pth",     ".gguf",
                                                             ".ckpt", ".h5", ".msgpack", ".onnx"};

struct ShardNumber {
  std::uint32_t part = 0;  // from 1
  std::uint32_t of = 0;
};

std::optional<std::uint32_t> take_number(std::string_view& text) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

/// "model-00002-of-00096.safetensors" with any number of digits.
std::optional<ShardNumber> shard_number(std::string_view name) {
  const auto take = [&name](std::string_view text) {
    if (!name.starts_with(text)) return false;
    name.remove_prefix(text.size());
    return true;
  };
  if (!take("model-")) return std::nullopt;
  const auto part = take_number(name);
  if (!part || !take("-of-")) return std::nullopt;
  const auto of = take_number(name);
  if (!of || name != ".safetensors") return std::nullopt;
  return ShardNumber{*part, *of};
}

/// Without an index: are these shards 1..n of one n?
Status check_complete(const std::string& folder, const std::vector<std::string>& shards) {
  std::vector<std::uint32_t> parts;
  std::uint32_t of = 0;
  for (const std::string& name : shards) {
    const auto number = shard_number(name);
    if (!number) {
      return Error{folder + ": has both " + quote_text(name) + " and numbered shards, and no " + kIndexName +
                   " to say which belong to the model"};
    }
    if (of != 0 && number->of != of) {
      return Error{folder + ": has shards of sets of " + std::to_string(of) + " and of " +
                   std::to_string(number->of) + ", and no " + kIndexName +
                   " to say which belong to the model"};
    }
    of = number->of;
    parts.push_back(number->part);
  }
  std::sort(parts.begin(), parts.end());
  if (std::adjacent_find(parts.begin(), parts.end()) != parts.end() || parts.front() < 1 ||
      parts.back() > of) {
    return Error{folder + ": the shards are not numbered 1 to " + std::to_string(of) + ", and there is no " +
                 kIndexName};
  }
  if (parts.size() == of) return {};
  ProblemList missing("missing shards");
  auto present = parts.begin();
  for (std::uint64_t part = 1; part <= of && missing.shows_next(); ++part) {
    if (present != parts.end() && *present == part) {
      ++present;
    } else {
      missing.add(std::to_string(part));
    }
  }
  missing.add_unshown(of - parts.size() - missing.count());
  return Error{folder + ": has " + std::to_string(parts.size()) + " of " + std::to_string(of) +
               " shards:" + missing.line()};
}

}  // namespace

bool is_weight_file(std::string_view name) {
  return name.ends_with(".safetensors") || name.ends_with(".index.json") ||
         std::ranges::any_of(kForeignEndings,
                             [&](std::string_view ending) { return name.ends_with(ending); });
}

Result<FolderListing> list_checkpoint_folder(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (!fs::exists(status)) {
    return Error{folder + ": cannot be opened: " + (error ? error.message() : "no such folder")};
  }
  if (!fs::is_directory(status))
    return Error{folder + ": is not a folder; give the folder of the checkpoint"};

  FolderListing listing;
  std::vector<std::string> foreign;
  fs::directory_iterator it(folder, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    std::string name = it->path().filename().string();
    if (name == kIndexName) {
      listing.has_index = true;
    } else if (name == kSingleName || shard_number(name)) {
      listing.shards.push_back(std::move(name));
    } else if (name.ends_with(".safetensors")) {
      listing.others.push_back(std::move(name));
    } else if (std::any_of(kForeignEndings.begin(), kForeignEndings.end(),
                           [&](std::string_view ending) { return name.ends_with(ending); })) {
      foreign.push_back(std::move(name));
    }
  }
  if (error) return Error{folder + ": cannot be listed: " + error.message()};
  std::sort(listing.shards.begin(), listing.shards.end());
  std::sort(listing.others.begin(), listing.others.end());
  if (listing.has_index) return listing;

  if (listing.shards.empty()) {
    std::sort(foreign.begin(), foreign.end());
    std::string found = " and no other weights either";
    if (!listing.others.empty()) found = ", only " + quote_text(listing.others.front());
    if (listing.others.empty() && !foreign.empty()) {
      found = ", only " + quote_text(foreign.front()) +
              "; this format is not read, convert the weights to safetensors";
    }
    return Error{folder + ": has no model.safetensors or numbered shards of it" + found};
  }
  if (listing.shards.size() == 1 && listing.shards.front() == kSingleName) return listing;
  FL_TRY(check_complete(folder, listing.shards));
  return listing;
}

}  // namespace firstlight
