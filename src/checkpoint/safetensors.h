// The safetensors file format: 8 bytes of little-endian header length, a JSON header, tensor data.
#pragma once

#include <cstdint>
#include <span>
#include <string>
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

/// Writes all tensors, wider element types first so that each is aligned, the order kept otherwise. The file
/// appears under its name only when it is complete and on the disk.
Status write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                         const std::vector<std::pair<std::string, std::string>>& metadata = {});

}  // namespace firstlight
