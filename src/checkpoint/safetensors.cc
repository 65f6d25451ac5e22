#include "checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <numeric>
#include <optional>
#include <string_view>

#include "base/json_limits.h"

namespace firstlight {

static_assert(std::endian::native == std::endian::little, "tensor data is used as it lies in the file");

namespace {

constexpr std::uint64_t kLengthBytes = 8;
// The reference implementation refuses longer headers; the largest published ones have a few MB.
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
// numpy's limit. Without one, "[1,1,1,..." would be a tensor of millions of dimensions.
constexpr std::size_t kMaxRank = 64;
// Entries cost over 100 bytes each, however short; real files have a handful.
constexpr std::size_t kMaxMetadata = 65536;

constexpr std::array kDTypes = {DType::kF32, DType::kBF16, DType::kF16,    DType::kI32,
                                DType::kU8,  DType::kI64,  DType::kF8E4M3, DType::kF8E8M0};

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const DType t : kDTypes) {
    if (dtype_name(t) == name) return t;
  }
  return std::nullopt;
}

std::string known_dtypes() {
  std::string list;
  for (const DType t : kDTypes) list += (list.empty() ? "" : ", ") + std::string(dtype_name(t));
  return list;
}

struct HeaderEntry {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::uint64_t begin = 0;  // within the data section
  std::uint64_t end = 0;
};

/// Takes the header apart event by event: what it holds at any time is bounded by the bytes read so far.
class HeaderHandler final : public JsonHandler {
 public:
  std::vector<HeaderEntry> entries;
  std::vector<std::pair<std::string, std::string>> metadata;

  bool start_object(std::size_t) override {
    switch (at_) {
      case At::kBegin:
        return go(At::kTop);
      case At::kEntry:
        return go(At::kField);
      case At::kMetadata:
        return go(At::kMetadataKey);
      default:
        return unexpected();
    }
  }

  bool key(string_t& text) override {
    switch (at_) {
      case At::kTop:
        return start_entry(std::move(text));
      case At::kField:
        return start_field(text);
      case At::kMetadataKey:
        if (metadata.size() == kMaxMetadata) {
          return fail("\"__metadata__\" has more than " + std::to_string(kMaxMetadata) + " entries");
        }
        metadata.emplace_back(std::move(text), std::string());
        return go(At::kMetadataValue);
      default:
        return unexpected();
    }
  }

  bool string(string_t& text) override {
    if (at_ == At::kMetadataValue) {
      metadata.back().second = std::move(text);
      return go(At::kMetadataKey);
    }
    if (at_ != At::kDType) return unexpected();
    const auto dtype = dtype_from_name(text);
    if (!dtype) return fail(entry() + " has dtype " + quote_text(text) + ", supported are " + known_dtypes());
    entries.back().dtype = *dtype;
    return go(At::kField);
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (at_ == At::kShape) {
      if (value > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
        return fail(entry() + " has the dimension " + std::to_string(value));
      }
      Shape& shape = entries.back().shape;
      if (shape.size() == kMaxRank) {
        return fail(entry() + " has more than " + std::to_string(kMaxRank) + " dimensions");
      }
      shape.push_back(static_cast<std::int64_t>(value));
      return true;
    }
    if (at_ != At::kOffsets || offsets_seen_ == 2) return unexpected();
    (offsets_seen_ == 0 ? entries.back().begin : entries.back().end) = value;
    ++offsets_seen_;
    return true;
  }

  bool start_array(std::size_t) override {
    if (at_ == At::kShapeList) return go(At::kShape);
    if (at_ == At::kOffsetsList) return go(At::kOffsets);
    return unexpected();
  }

  bool end_array() override {
    if (at_ == At::kOffsets && offsets_seen_ != 2) return unexpected();
    return go(At::kField);
  }

  bool end_object() override {
    switch (at_) {
      case At::kField:
        if (!seen_dtype_ || !seen_shape_ || !seen_offsets_) {
          return fail(entry() + " lacks \"" +
                      (!seen_dtype_   ? "dtype"
                       : !seen_shape_ ? "shape"
                                      : "data_offsets") +
                      "\"");
        }
        return go(At::kTop);
      case At::kMetadataKey:
        return check_metadata() && go(At::kTop);
      case At::kTop:
        return go(At::kEnd);
      default:
        return unexpected();
    }
  }

 protected:
  bool unexpected() override {
    switch (at_) {
      case At::kBegin:
      case At::kTop:
      case At::kEnd:
        return fail("the header is not a JSON object");
      case At::kEntry:
      case At::kField:
        return fail(entry() + " is not described by an object");
      case At::kDType:
        return fail(entry() + ": \"dtype\" is not a string");
      case At::kShapeList:
      case At::kShape:
        return fail(entry() + ": \"shape\" is not a list of non-negative integers");
      case At::kOffsetsList:
      case At::kOffsets:
        return fail(entry() + ": \"data_offsets\" is not a list of two non-negative integers");
      case At::kMetadata:
      case At::kMetadataKey:
      case At::kMetadataValue:
        return fail("\"__metadata__\" is not an object of strings");
    }
    return fail("the header is malformed");
  }

 private:
  enum class At {
    kBegin,
    kTop,            // before a tensor's name
    kEntry,          // before a tensor's object
    kField,          // before "dtype", "shape", "data_offsets"
    kDType,          // before its string
    kShapeList,      // before its list
    kShape,          // in the list
    kOffsetsList,    // before its list
    kOffsets,        // in the list
    kMetadata,       // before its object
    kMetadataKey,    // in the object
    kMetadataValue,  // before a string
    kEnd
  };

  bool go(At next) {
    at_ = next;
    return true;
  }

  [[nodiscard]] std::string entry() const { return "tensor " + quote_text(entries.back().name); }

  bool start_entry(std::string name) {
    if (name == "__metadata__") {
      if (seen_metadata_) return fail("\"__metadata__\" appears twice");
      seen_metadata_ = true;
      return go(At::kMetadata);
    }
    entries.emplace_back().name = std::move(name);
    seen_dtype_ = seen_shape_ = seen_offsets_ = false;
    offsets_seen_ = 0;
    return go(At::kEntry);
  }

  bool start_field(const std::string& field) {
    bool* seen = nullptr;
    if (field == "dtype") {
      seen = &seen_dtype_;
      at_ = At::kDType;
    } else if (field == "shape") {
      seen = &seen_shape_;
      at_ = At::kShapeList;
    } else if (field == "data_offsets") {
      seen = &seen_offsets_;
      at_ = At::kOffsetsList;
    } else {
      return fail(entry() + " has the unknown field " + quote_text(field));
    }
    if (*seen) return fail(entry() + " has \"" + field + "\" twice");
    *seen = true;
    return true;
  }

  bool check_metadata() {
    std::vector<std::string_view> keys;
    for (const auto& [name, value] : metadata) keys.push_back(name);
    std::sort(keys.begin(), keys.end());
    const auto twice = std::adjacent_find(keys.begin(), keys.end());
    return twice == keys.end() || fail("\"__metadata__\" has the key " + quote_text(*twice) + " twice");
  }

  At at_ = At::kBegin;
  bool seen_metadata_ = false;
  bool seen_dtype_ = false;
  bool seen_shape_ = false;
  bool seen_offsets_ = false;
  int offsets_seen_ = 0;
};

/// Elements times element size, if that fits. Multiplies in the order of element_count(), so that what passes
/// here cannot overflow there.
std::optional<std::int64_t> checked_bytes(const HeaderEntry& e) {
  std::int64_t n = 1;
  for (const std::int64_t d : e.shape) {
    if (__builtin_mul_overflow(n, d, &n)) return std::nullopt;
  }
  if (__builtin_mul_overflow(n, static_cast<std::int64_t>(dtype_size(e.dtype)), &n)) return std::nullopt;
  return n;
}

/// What is wrong with one tensor on its own, or nothing.
std::string problem_of(const HeaderEntry& e, std::uint64_t data_bytes) {
  const std::string range = "[" + std::to_string(e.begin) + ", " + std::to_string(e.end) + ")";
  if (e.begin > e.end) return "has the data range " + range;
  if (e.end > data_bytes) {
    return "has the data range " + range + " but the file holds " + std::to_string(data_bytes) +
           " bytes of data: it is truncated, or its header is wrong";
  }
  const auto bytes = checked_bytes(e);
  if (!bytes) return "has the shape " + shape_text(e.shape) + ", whose size overflows";
  if (static_cast<std::uint64_t>(*bytes) != e.end - e.begin) {
    return "has " + std::to_string(e.end - e.begin) + " bytes of data, but " +
           std::string(dtype_name(e.dtype)) + " " + shape_text(e.shape) + " needs " + std::to_string(*bytes);
  }
  return {};
}

/// The data section is filled from its begin to its end, each byte by one tensor.
std::string layout_problem(const std::vector<HeaderEntry>& sorted, std::uint64_t data_bytes) {
  std::uint64_t filled = 0;
  const HeaderEntry* previous = nullptr;
  for (const HeaderEntry& e : sorted) {
    if (e.begin < filled) {
      return "tensors " + quote_text(previous->name) + " and " + quote_text(e.name) + " overlap";
    }
    if (e.begin > filled) {
      return "data bytes " + std::to_string(filled) + " to " + std::to_string(e.begin) + ", before tensor " +
             quote_text(e.name) + ", belong to no tensor";
    }
    filled = e.end;
    previous = &e;
  }
  if (filled < data_bytes) {
    return "the last " + std::to_string(data_bytes - filled) + " bytes of data belong to no tensor";
  }
  return {};
}

std::string duplicate_name(const std::vector<HeaderEntry>& entries) {
  std::vector<std::uint32_t> order(entries.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return entries[a].name < entries[b].name; });
  const auto twice = std::adjacent_find(order.begin(), order.end(),
                                        [&](auto a, auto b) { return entries[a].name == entries[b].name; });
  return twice == order.end() ? "" : "tensor " + quote_text(entries[*twice].name) + " appears twice";
}

}  // namespace

Result<SafetensorsContent> parse_safetensors(std::span<const std::uint8_t> file, const std::string& path) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (text.starts_with("version https://git-lfs")) {
    return Error{path + ": is a Git LFS pointer, not the file itself; download the real file"};
  }
  if (file.size() < kLengthBytes) {
    return Error{path + ": has " + std::to_string(file.size()) + " bytes, too few for a safetensors file"};
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) length |= std::uint64_t{file[i]} << (8 * i);
  const std::uint64_t rest = file.size() - kLengthBytes;
  if (length > kMaxHeaderBytes) {
    return Error{path + ": claims a header of " + std::to_string(length) +
                 " bytes; is this a safetensors file? At most " + std::to_string(kMaxHeaderBytes) +
                 " are accepted"};
  }
  if (length > rest) {
    return Error{path + ": claims a header of " + std::to_string(length) + " bytes but only " +
                 std::to_string(rest) + " follow: it is truncated"};
  }
  const std::string_view header = text.substr(kLengthBytes, static_cast<std::size_t>(length));
  if (!header.starts_with('{')) return Error{path + ": the header does not begin with '{'"};

  HeaderHandler handler;
  FL_TRY(read_json_events(header, path, handler));
  std::vector<HeaderEntry>& entries = handler.entries;

  const std::uint64_t data_bytes = rest - length;
  for (const HeaderEntry& e : entries) {
    if (const std::string problem = problem_of(e, data_bytes); !problem.empty()) {
      return Error{path + ": tensor " + quote_text(e.name) + " " + problem};
    }
  }
  if (const std::string twice = duplicate_name(entries); !twice.empty()) return Error{path + ": " + twice};
  // Empty tensors sort before the tensor that begins at their place.
  std::sort(entries.begin(), entries.end(), [](const HeaderEntry& a, const HeaderEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  if (const std::string problem = layout_problem(entries, data_bytes); !problem.empty()) {
    return Error{path + ": " + problem};
  }

  SafetensorsContent content;
  content.metadata = std::move(handler.metadata);
  content.tensors.reserve(entries.size());
  const std::uint8_t* const data = file.data() + kLengthBytes + length;
  for (HeaderEntry& e : entries) {
    content.tensors.push_back({std::move(e.name), {e.dtype, std::move(e.shape), data + e.begin}});
  }
  return content;
}

Result<SafetensorsFile> open_safetensors(const std::string& path) {
  FL_ASSIGN(MappedFile file, MappedFile::open(path));
  FL_ASSIGN(SafetensorsContent content, parse_safetensors(file.bytes(), path));
  return SafetensorsFile{std::move(file), std::move(content)};
}

}  // namespace firstlight
