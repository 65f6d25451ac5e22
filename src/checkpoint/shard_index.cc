#include "checkpoint/shard_index.h"

#include <algorithm>
#include <unordered_map>

#include "base/json_limits.h"
#include "checkpoint/problem_list.h"

namespace firstlight {

namespace {

// "metadata" is not used, only walked over; it is two levels deep in practice.
constexpr int kMaxMetadataDepth = 64;

bool is_plain_file_name(std::string_view name) {
  return name.ends_with(".safetensors") && !name.starts_with('.') && name.find('/') == name.npos &&
         name.find('\\') == name.npos && name.find('\0') == name.npos;
}

class IndexHandler final : public JsonHandler {
 public:
  ShardIndex index;

  bool null() override { return scalar(); }
  bool boolean(bool) override { return scalar(); }
  bool number_integer(number_integer_t) override { return scalar(); }
  bool number_unsigned(number_unsigned_t) override { return scalar(); }
  bool number_float(number_float_t, const string_t&) override { return scalar(); }
  bool string(string_t& text) override {
    if (at_ != At::kFile) return scalar();
    at_ = At::kTensor;
    if (!is_plain_file_name(text)) {
      bad_names_.add(quote_text(text) + " for " + quote_text(index.entries.back().tensor));
      return true;
    }
    const auto [known, added] = ids_.try_emplace(std::move(text), static_cast<std::uint32_t>(ids_.size()));
    index.entries.back().file = known->second;
    return true;
  }

  bool start_object(std::size_t) override {
    if (at_ == At::kBegin) return go(At::kTop);
    if (at_ == At::kMap) return go(At::kTensor);
    return open();
  }
  bool start_array(std::size_t) override { return open(); }
  bool end_array() override { return close(); }
  bool end_object() override {
    if (at_ == At::kTensor) return go(At::kTop);
    if (at_ == At::kTop) return go(At::kEnd);
    return close();
  }

  bool key(string_t& text) override {
    if (at_ == At::kSkip) return true;
    if (at_ == At::kTensor) {
      index.entries.push_back({std::move(text), 0});
      return go(At::kFile);
    }
    const bool map = text == "weight_map";
    if (!map && text != "metadata") return fail("has the unknown field " + quote_text(text));
    bool& seen = map ? seen_map_ : seen_metadata_;
    if (seen) return fail("has \"" + text + "\" twice");
    seen = true;
    return go(map ? At::kMap : At::kSkip);
  }

  /// Sorts, and reports what only the whole shows.
  [[nodiscard]] std::string finish() {
    if (!seen_map_) return "lacks \"weight_map\"";
    if (index.entries.empty()) return "lists no tensor";
    // Files were numbered as they came; number them by name.
    index.files.reserve(ids_.size());
    for (const auto& [name, id] : ids_) index.files.push_back(name);
    std::sort(index.files.begin(), index.files.end());
    std::vector<std::uint32_t> by_id(index.files.size());
    for (std::uint32_t i = 0; i < index.files.size(); ++i) by_id[ids_.at(index.files[i])] = i;
    if (bad_names_.count() == 0) {
      for (auto& e : index.entries) e.file = by_id[e.file];
    }
    std::sort(index.entries.begin(), index.entries.end(),
              [](const auto& a, const auto& b) { return a.tensor < b.tensor; });
    ProblemList twice("tensors listed twice");
    for (std::size_t i = 1; i < index.entries.size(); ++i) {
      if (index.entries[i - 1].tensor == index.entries[i].tensor) {
        twice.add(quote_text(index.entries[i].tensor));
      }
    }
    const std::string lines = bad_names_.line() + twice.line();
    return lines.empty() ? "" : "cannot be used:" + lines;
  }

 protected:
  bool unexpected() override {
    if (at_ == At::kFile) {
      return fail("\"weight_map\": the file of " + quote_text(index.entries.back().tensor) +
                  " is not a string");
    }
    if (at_ == At::kMap) return fail("\"weight_map\" is not an object");
    return fail("is not a JSON object");
  }

 private:
  enum class At {
    kBegin,
    kTop,     // before "metadata" or "weight_map"
    kMap,     // before the map's object
    kTensor,  // before a tensor's name
    kFile,    // before its file
    kSkip,    // in "metadata"
    kEnd
  };

  bool go(At next) {
    at_ = next;
    return true;
  }
  bool scalar() {
    if (at_ != At::kSkip) return unexpected();
    if (depth_ == 0) at_ = At::kTop;
    return true;
  }
  bool open() {
    if (at_ != At::kSkip) return unexpected();
    return ++depth_ <= kMaxMetadataDepth || fail("\"metadata\" is nested too deeply");
  }
  bool close() {
    if (--depth_ == 0) at_ = At::kTop;
    return true;
  }

  At at_ = At::kBegin;
  bool seen_map_ = false;
  bool seen_metadata_ = false;
  int depth_ = 0;
  std::unordered_map<std::string, std::uint32_t> ids_;
  ProblemList bad_names_{"names that are not those of a safetensors file in this folder"};
};

}  // namespace

Result<ShardIndex> parse_shard_index(std::string_view text, const std::string& path) {
  IndexHandler handler;
  FL_TRY(read_json_events(text, path, handler));
  if (const std::string problem = handler.finish(); !problem.empty()) return Error{path + ": " + problem};
  return std::move(handler.index);
}

}  // namespace firstlight
