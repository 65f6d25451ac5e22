// How a weight that is not stored as plain numbers lies in the checkpoint: which tensors, of which types and
// shapes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/quantization.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/weights.h"

namespace firstlight {

struct PackedLayout {
  struct Piece {
    std::string name;
    std::vector<DType> dtypes;
    Shape shape;
    std::vector<Shape> also = {};
  };

  WeightFormat format = WeightFormat::kPlain;
  Piece codes;
  Piece scales;
  /// I64 [rank] that repeats the weight's shape, for kInt.
  std::optional<Piece> shape = {};
  std::int64_t block_rows = 1;
  std::int64_t block_columns = 1;
  /// Why no weight of this shape can be stored so, or empty.
  std::string refusal;
};

/// What is stored for the request in a packed format, going by the names and types of the tensors that are
/// there; nothing when the weight is plain or absent. Pieces may be missing or of another shape.
std::optional<PackedLayout> packed_layout(const Checkpoint& checkpoint, const WeightRequest& request,
                                          const Quantization& quantization);

}  // namespace firstlight
