// Which rows of a tensor its declared parts take: a row that none takes is a mistake of the model file, or of
// the checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/tensor_part.h"

namespace firstlight {

class PartCoverage {
 public:
  /// All parts of a tensor agree in shape and orientation; `part` is any of them.
  explicit PartCoverage(const TensorPart& part)
      : slice_rows_(slice_rows(part)),
        taken_(static_cast<std::size_t>(slice_count(part) * slice_rows(part)), false) {}

  void add(const TensorPart& part) {
    const std::int64_t base = slice_index(part) * slice_rows_;
    for (std::int64_t group = part.first; group < slice_rows_; group += part.every) {
      for (std::int64_t r = group; r < group + part.count; ++r)
        taken_[static_cast<std::size_t>(base + r)] = true;
    }
  }

  /// "3 of 128 rows, from row 5 of slice 2 on", or nothing when all are taken.
  [[nodiscard]] std::string gap() const {
    std::int64_t missing = 0;
    std::int64_t first = -1;
    for (std::size_t r = 0; r < taken_.size(); ++r) {
      if (taken_[r]) continue;
      if (missing++ == 0) first = static_cast<std::int64_t>(r);
    }
    if (missing == 0) return {};
    const bool stack = static_cast<std::int64_t>(taken_.size()) > slice_rows_;
    return std::to_string(missing) + " of " + std::to_string(taken_.size()) + " rows, the first is row " +
           std::to_string(first % slice_rows_) +
           (stack ? " of slice " + std::to_string(first / slice_rows_) : "");
  }

 private:
  std::int64_t slice_rows_;
  std::vector<bool> taken_;  // [slices, slice_rows]
};

}  // namespace firstlight
