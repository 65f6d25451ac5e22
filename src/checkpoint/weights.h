// From the tensors a model asks for to the bytes that hold them. Every request must be met and every tensor
// of the checkpoint must be used, or the load fails with one Error that lists everything.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/quantization.h"
#include "base/result.h"
#include "base/tensor.h"
#include "base/tensor_part.h"
#include "checkpoint/checkpoint.h"

namespace firstlight {

/// What a plain weight may be stored as.
inline constexpr std::array kPlainTypes = {DType::kBF16, DType::kF16, DType::kF32};

struct WeightRequest {
  std::string name;
  Shape shape;  // of the whole stored tensor
  /// Other shapes in which the same elements may be stored, e.g. [1,1,32,1] for [32].
  std::vector<Shape> also_accept = {};
  /// The tensor may be stored with this many rows instead (0: no); the rows beyond must be zero and are
  /// dropped.
  std::int64_t padded_rows = 0;
  /// Only this part is wanted; its `full` is `shape`. All rows of a tensor must be asked for, in any parts.
  std::optional<TensorPart> part = {};
  /// Files that store nothing under `name` may store this instead.
  std::optional<NamedPart> or_part = {};
};

/// Tensors that the model does not use on purpose.
struct IgnoredPrefix {
  std::string prefix;
  std::string reason;
  std::string copy_of = {};  // if not empty: the tensor must hold the same bytes as this one
};

/// Where the rows of a weight lie in its tensor: row r is row first + r / count * every + r % count of a
/// slice. What is there by default is all rows.
struct StoredRows {
  std::int64_t slices = 1;
  std::int64_t slice = 0;
  std::int64_t slice_rows = 0;
  std::int64_t first = 0;
  std::int64_t count = 1;
  std::int64_t every = 1;
  bool transposed = false;  // the slice is stored [K, N], and its rows are the N columns

  [[nodiscard]] std::int64_t in_slice(std::int64_t row) const {
    return first + row / count * every + row % count;
  }
  [[nodiscard]] std::int64_t stored(std::int64_t row) const { return slice * slice_rows + in_slice(row); }
  /// How many rows from `row` on lie one behind the other, at most `most`.
  [[nodiscard]] std::int64_t run(std::int64_t row, std::int64_t most) const {
    return count == every ? most : std::min(most, count - row % count);
  }
};

struct WeightData {
  std::string name;  // as requested, and which part
  Shape shape;       // of the part, or of the whole
  WeightFormat format = WeightFormat::kPlain;
  StoredRows rows;
  TensorView data;                 // of the whole tensor: numbers, or the codes of a packed format
  TensorView scale;                // of a packed format
  std::int64_t block_rows = 1;     // rows that share a scale (more than one: kFP8 only)
  std::int64_t block_columns = 1;  // columns that share a scale
  std::int64_t bits = 0;           // kInt: 4 or 8
};

struct BoundWeights {
  std::vector<WeightData> weights;   // in the order of the requests
  std::vector<std::string> notices;  // what was left out, and why
};

/// The views point into the checkpoint's files: keep it open. A weight may be stored in the packed format
/// that `quantization` describes, and in no other.
Result<BoundWeights> bind_weights(const Checkpoint& checkpoint, const std::vector<WeightRequest>& requests,
                                  const std::vector<IgnoredPrefix>& ignored = {},
                                  const Quantization& quantization = {});

/// Row access: rows along the leading dimension, everything behind it is one row (a vector has rows of one
/// element, a scalar is one row). f32 is exact for plain tensors and MXFP4; a code times a scale (FP8, INT)
/// is one product in f32. bf16 is that value rounded to nearest even. Plain tensors: BF16, F16 and F32 only.
[[nodiscard]] std::int64_t weight_rows(const WeightData& weight);
[[nodiscard]] std::int64_t weight_row_elements(const WeightData& weight);

/// Bytes of the files that the weight's rows take, up to what is shared with other rows.
[[nodiscard]] std::int64_t stored_bytes(const WeightData& weight);

/// Where those rows lie, codes and scales: the smallest stretch that holds them.
[[nodiscard]] std::array<std::span<const std::uint8_t>, 2> stored_spans(const WeightData& weight);

/// Where a row lies in one piece as plain numbers of this type, or null.
[[nodiscard]] const std::uint8_t* stored_row(const WeightData& weight, std::int64_t row, DType type);

/// Rows as they are stored, without rounding: for MXFP4, and for integers with one scale a row (8 bits) or a
/// bf16 scale for 32 columns (4 bits). Others have no codes.
[[nodiscard]] bool has_row_codes(const WeightData& weight);
/// codes [K]: 0..15 of E2M1, or integers; scales: E8M0 bytes, one f32, or bf16 halves.
Status read_row_codes(const WeightData& weight, std::int64_t row, std::int8_t* codes, std::uint8_t* scales);

/// Whether every value is the same in bf16: always for BF16 and MXFP4, for FP8 if the scales allow it.
[[nodiscard]] bool is_exact_in_bf16(const WeightData& weight);

/// Writes rows [row_begin, row_begin + row_count) one after the other. Fails, naming the tensor, where a
/// packed format has a NaN, an infinite scale, or a value beyond the range of float.
Status read_rows_f32(const WeightData& weight, std::int64_t row_begin, std::int64_t row_count, float* out);
Status read_rows_bf16(const WeightData& weight, std::int64_t row_begin, std::int64_t row_count,
                      std::uint16_t* out);

}  // namespace firstlight
