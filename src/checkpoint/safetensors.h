// The safetensors file format: 8 bytes of little-endian header length, a JSON header, tensor data.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "base/tensor.h"

namespace firstlight {

struct NamedTensor {
  std::string name;
  TensorView view;
};

struct SafetensorsContent {
  std::vector<NamedTensor> tensors;                           // in the order of their data
  std::vector<std::pair<std::string, std::string>> metadata;  // "__metadata__"
};

/// Reads the header of a file that lies in memory; the views point into `file`. Everything the header claims
/// is checked against the bytes that are there: known dtypes, bytes = product of the shape, tensors that fill
/// the data section without gap or overlap, distinct names. `path` is for messages.
Result<SafetensorsContent> parse_safetensors(std::span<const std::uint8_t> file, const std::string& path);

/// A mapped file and what it holds. Opening reads the header only.
struct SafetensorsFile {
  MappedFile file;
  SafetensorsContent content;
};
Result<SafetensorsFile> open_safetensors(const std::string& path);

using SafetensorsMetadata = std::vector<std::pair<std::string, std::string>>;

/// A file that is filled piece by piece, so that its tensors need not be in memory together. They lie in the
/// file with wider element types first, so that each is aligned, otherwise in the order given. The file
/// appears under its name only when it is complete and on the disk; given up before that, nothing is left of
/// it.
class SafetensorsWriter {
 public:
  /// The tensors' types, shapes and names; `data` is not looked at.
  static Result<SafetensorsWriter> create(const std::string& path, const std::vector<NamedTensor>& tensors,
                                          const SafetensorsMetadata& metadata = {});
  SafetensorsWriter(SafetensorsWriter&& other) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&&) = delete;
  ~SafetensorsWriter();

  /// Bytes [at, at + count) of the tensor of that index. Each byte must be written once. From any thread.
  Status write(std::size_t tensor, std::int64_t at, const void* data, std::int64_t count);
  Status commit();
  /// The bytes of the file before its data.
  [[nodiscard]] std::string_view head() const;

 private:
  struct State;
  explicit SafetensorsWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// The same with all tensors at once.
Status write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                         const SafetensorsMetadata& metadata = {});

}  // namespace firstlight
