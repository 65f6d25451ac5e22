#include "engine/packed_key.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/json_limits.h"
#include "device/cpu/packed_matrix.h"

namespace firstlight {
namespace {

std::string digest(std::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  std::array<char, 33> out{};
  std::snprintf(out.data(), out.size(), "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return out.data();
}

/// Where a tensor lies: file, place, type and shape.
std::string place_text(const TensorView& view, const Checkpoint& checkpoint) {
  if (view.data == nullptr) return "-";
  std::string place = "memory";
  for (std::size_t f = 0; f < checkpoint.files().size(); ++f) {
    const std::span<const std::uint8_t> all = checkpoint.files()[f].bytes();
    if (std::less<>()(view.data, all.data()) || !std::less<>()(view.data, all.data() + all.size())) continue;
    place = std::to_string(f) + ":" + std::to_string(view.data - all.data());
  }
  return place + " " + std::string(dtype_name(view.dtype)) + shape_text(view.shape);
}

std::string weight_text(const WeightData& w, const Checkpoint& checkpoint) {
  std::string text = w.name + shape_text(w.shape) + " " + std::string(format_name(w.format)) + " " +
                     place_text(w.data, checkpoint) + " " + place_text(w.scale, checkpoint);
  const StoredRows& r = w.rows;
  for (const std::int64_t n : {r.slices, r.slice, r.slice_rows, r.first, r.count, r.every,
                               std::int64_t{r.transposed}, w.block_rows, w.block_columns, w.bits}) {
    text += " " + std::to_string(n);
  }
  return text + "\n";
}

/// The bytes of a safetensors file before its data; it was opened, so the length is right.
std::string_view header_of(const MappedFile& file) {
  std::uint64_t length = 0;
  std::memcpy(&length, file.bytes().data(), sizeof(length));
  return {reinterpret_cast<const char*>(file.bytes().data()),
          sizeof(length) + static_cast<std::size_t>(length)};
}

std::string_view form_of(HeldAs held, bool f32) {
  return held != HeldAs::kStored ? held_name(held) : f32 ? "f32" : "bf16";
}

}  // namespace

std::string form_name(bool f32, const RunSettings& settings) {
  std::string name(form_of(settings.weights, f32));
  if (settings.experts != settings.weights) {
    name += "-experts-" + std::string(form_of(settings.experts, f32));
  }
  return name + (settings.expanded_prefill ? "-expanded" : "");
}

std::string packed_key(const Graph& graph, const Checkpoint& checkpoint, std::span<const WeightData> weights,
                       bool f32, const RunSettings& settings) {
  std::string key = "packing version " + std::to_string(kPackingVersion) + "\n";
  key += "form " + form_name(f32, settings) + "\n";
  for (const MappedFile& file : checkpoint.files()) {
    key += "file " + file.path().substr(file.path().rfind('/') + 1) + " of " + std::to_string(file.size()) +
           " bytes, changed at " + std::to_string(file.modified()) + ", header " + digest(header_of(file)) +
           "\n";
  }
  std::string tensors;
  for (const WeightData& w : weights) tensors += weight_text(w, checkpoint);
  key += "weights " + digest(tensors) + "\n";
  return key + "graph " + digest(graph_text(graph)) + "\n";
}

std::optional<std::string> difference(std::string_view kept, std::string_view key) {
  if (kept == key) return std::nullopt;
  const std::string padded = "\n" + std::string(key);
  while (!kept.empty()) {
    const std::string_view line = kept.substr(0, kept.find('\n'));
    if (padded.find("\n" + std::string(line) + "\n") == std::string::npos) {
      return quote_text(line);
    }
    kept.remove_prefix(std::min(kept.size(), line.size() + 1));
  }
  return "fewer files";
}

}  // namespace firstlight
