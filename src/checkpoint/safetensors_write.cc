#include <algorithm>
#include <atomic>
#include <numeric>
#include <set>
#include <string_view>

#include "base/json_limits.h"
#include "base/pending_file.h"
#include "checkpoint/safetensors.h"

namespace firstlight {

namespace {

/// The header text, padded so that data begins at a multiple of 8.
Result<std::string> header_text(const std::string& path, const std::vector<const NamedTensor*>& tensors,
                                const SafetensorsMetadata& metadata) {
  // The names were checked to be distinct, so members go straight to the end of the object.
  nlohmann::ordered_json::object_t header;
  if (!metadata.empty()) {
    nlohmann::ordered_json strings = nlohmann::ordered_json::object();
    for (const auto& [name, value] : metadata) strings[name] = value;
    header.emplace_back("__metadata__", std::move(strings));
  }
  std::int64_t end = 0;
  for (const NamedTensor* t : tensors) {
    const std::int64_t begin = end;
    end += t->view.bytes();
    nlohmann::ordered_json entry;
    entry["dtype"] = dtype_name(t->view.dtype);
    entry["shape"] = t->view.shape;
    entry["data_offsets"] = {begin, end};
    header.emplace_back(t->name, std::move(entry));
  }
  std::string text;
  try {
    text = nlohmann::ordered_json(std::move(header)).dump();
  } catch (const nlohmann::json::exception&) {
    return Error{path + ": a tensor name or a metadata entry is not valid UTF-8"};
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

struct SafetensorsWriter::State {
  explicit State(const std::string& path) : file(path) {}
  PendingFile file;
  std::string head;                 // all before the data: the header and its length
  std::vector<std::int64_t> begin;  // by tensor: where its bytes are in the file
  std::vector<std::int64_t> bytes;
  std::atomic<std::int64_t> missing = 0;
};

SafetensorsWriter::SafetensorsWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&& other) noexcept = default;
SafetensorsWriter::~SafetensorsWriter() = default;

Result<SafetensorsWriter> SafetensorsWriter::create(const std::string& path,
                                                    const std::vector<NamedTensor>& tensors,
                                                    const SafetensorsMetadata& metadata) {
  std::set<std::string_view> names = {"__metadata__"};
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& t : tensors) {
    if (!names.insert(t.name).second) return Error{path + ": tensor name " + quote_text(t.name) + " twice"};
    order.push_back(&t);
  }
  std::stable_sort(order.begin(), order.end(), [](const NamedTensor* a, const NamedTensor* b) {
    return dtype_size(a->view.dtype) > dtype_size(b->view.dtype);
  });
  FL_ASSIGN(const std::string header, header_text(path, order, metadata));

  auto state = std::make_unique<State>(path);
  state->begin.resize(tensors.size());
  state->bytes.resize(tensors.size());
  auto end = static_cast<std::int64_t>(sizeof(std::uint64_t) + header.size());
  for (const NamedTensor* t : order) {
    const auto i = static_cast<std::size_t>(t - tensors.data());
    state->begin[i] = end;
    state->bytes[i] = t->view.bytes();
    state->missing += state->bytes[i];
    end += state->bytes[i];
  }
  FL_TRY(state->file.create(end));
  const std::uint64_t length = header.size();
  state->head.assign(reinterpret_cast<const char*>(&length), sizeof(length));
  state->head += header;
  FL_TRY(state->file.write(0, state->head.data(), state->head.size()));
  return SafetensorsWriter(std::move(state));
}

Status SafetensorsWriter::write(std::size_t tensor, std::int64_t at, const void* data, std::int64_t count) {
  check(at >= 0 && count >= 0 && at <= state_->bytes[tensor] - count, "bytes within the tensor");
  state_->missing -= count;
  return state_->file.write(state_->begin[tensor] + at, data, static_cast<std::size_t>(count));
}

std::string_view SafetensorsWriter::head() const { return state_->head; }

Status SafetensorsWriter::commit() {
  check(state_->missing == 0, "every byte of a safetensors file written once");
  return state_->file.commit();
}

Status write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                         const SafetensorsMetadata& metadata) {
  FL_ASSIGN(SafetensorsWriter file, SafetensorsWriter::create(path, tensors, metadata));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    FL_TRY(file.write(i, 0, tensors[i].view.data, tensors[i].view.bytes()));
  }
  return file.commit();
}

}  // namespace firstlight
