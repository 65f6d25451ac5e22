// A view of a dense row-major tensor somewhere in memory; owns nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace firstlight {

using Shape = std::vector<std::int64_t>;

/// Product of the dimensions; 1 for a scalar. Dimensions were validated where they entered.
inline std::int64_t element_count(std::span<const std::int64_t> shape) {
  std::int64_t n = 1;
  for (const std::int64_t d : shape) n *= d;
  return n;
}

/// "[2, 3]"
inline std::string shape_text(std::span<const std::int64_t> shape) {
  std::string s = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i != 0) s += ", ";
    s += std::to_string(shape[i]);
  }
  return s + "]";
}

struct TensorView {
  DType dtype = DType::kF32;
  Shape shape;
  const std::uint8_t* data = nullptr;  // not necessarily aligned to the element (files decide)
  [[nodiscard]] std::int64_t elements() const { return element_count(shape); }
  [[nodiscard]] std::int64_t bytes() const {
    return elements() * static_cast<std::int64_t>(dtype_size(dtype));
  }
};

}  // namespace firstlight
