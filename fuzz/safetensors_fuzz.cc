// Any bytes are a safetensors file or one Error; every byte that an accepted file promises can be read.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto content = firstlight::parse_safetensors({data, size}, "fuzz");
  if (!content.ok()) return 0;
  std::size_t total = 0;
  std::uint8_t sum = 0;
  for (const auto& tensor : content->tensors) {
    const auto bytes = static_cast<std::size_t>(tensor.view.bytes());
    for (std::size_t i = 0; i < bytes; ++i) sum = static_cast<std::uint8_t>(sum + tensor.view.data[i]);
    total += bytes;
  }
  volatile std::uint8_t used = sum;
  static_cast<void>(used);
  if (total > size) std::abort();  // tensors do not overlap
  return 0;
}
