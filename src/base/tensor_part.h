// Some rows of a stored tensor: one expert of a stack, the gate rows of an interleaved matrix, one head's
// share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/tensor.h"

namespace firstlight {

/// `at` fixes leading dimensions; what they leave is a matrix (or vector) of rows, of which `count` are taken
/// from `first` on, and again in every further group of `every` rows. make_part() fills it in and checks it.
struct TensorPart {
  Shape full;                    // of the stored tensor, before any packing
  std::vector<std::int64_t> at;  // shorter than `full`
  std::int64_t first = 0;        // first + count <= every, and `every` divides the rows
  std::int64_t count = 0;
  std::int64_t every = 0;
  bool transposed = false;  // what `at` leaves is stored [K, N]; its rows are the N columns

  friend bool operator==(const TensorPart&, const TensorPart&) = default;
};

/// A part of the tensor of that name.
struct NamedPart {
  std::string name;
  TensorPart part;
};

/// Rows as a model file gives them; every = 0: once.
struct RowChoice {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t every = 0;
};

/// Checks that the part lies within a tensor of this shape (positive dimensions). Without `rows`, all of
/// them.
Result<TensorPart> make_part(Shape full, std::vector<std::int64_t> at, std::optional<RowChoice> rows,
                             bool transposed);

/// Rows that the tensor has where `at` leads.
std::int64_t slice_rows(const TensorPart& part);
/// Which slice of slice_rows() rows it is, in the order of storage.
std::int64_t slice_index(const TensorPart& part);
/// How many slices the tensor has.
std::int64_t slice_count(const TensorPart& part);
/// The shape of what is taken: [rows, whatever a row holds].
Shape part_shape(const TensorPart& part);

/// "[3].rows(0, 1, 2)", to stand behind the tensor's name.
std::string part_text(const TensorPart& part);

}  // namespace firstlight
