#include <algorithm>
#include <bit>
#include <cstring>

#include "base/json_limits.h"
#include "checkpoint/mxfp4.h"
#include "checkpoint/weights.h"

namespace firstlight {

namespace {

/// The element at `p`, which need not be aligned.
template <class T>
T load(const std::uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

void store(float value, float* out) { *out = value; }
void store(float value, std::uint16_t* out) { *out = f32_to_bf16(value); }

template <class Out>
void read_plain(const TensorView& tensor, std::int64_t begin, std::int64_t count, Out* out) {
  const std::uint8_t* p = tensor.data + begin * static_cast<std::int64_t>(dtype_size(tensor.dtype));
  switch (tensor.dtype) {
    case DType::kBF16:
      if constexpr (sizeof(Out) == 2) {
        if (count > 0) std::memcpy(out, p, static_cast<std::size_t>(count) * 2);
      } else {
        for (std::int64_t i = 0; i < count; ++i) out[i] = bf16_to_f32(load<std::uint16_t>(p + 2 * i));
      }
      return;
    case DType::kF16:
      for (std::int64_t i = 0; i < count; ++i) store(f16_to_f32(load<std::uint16_t>(p + 2 * i)), out + i);
      return;
    case DType::kF32:
      for (std::int64_t i = 0; i < count; ++i) store(load<float>(p + 4 * i), out + i);
      return;
    default:
      check(false, "rows are read as numbers from BF16, F16 and F32 only");
  }
}

/// A row of a weight that is stored [K, N]: K elements, each N after the last.
template <class Out>
void read_column(const WeightData& w, std::int64_t row, std::int64_t width, Out* out) {
  const std::int64_t begin = w.rows.slice * w.rows.slice_rows * width + w.rows.in_slice(row);
  for (std::int64_t k = 0; k < width; ++k) read_plain(w.plain, begin + k * w.rows.slice_rows, 1, out + k);
}

void store_bits(std::uint16_t bf16, float* out) { *out = bf16_to_f32(bf16); }
void store_bits(std::uint16_t bf16, std::uint16_t* out) { *out = bf16; }

/// One group of 32 columns: 16 bytes.
template <class Out>
void read_group(const std::uint8_t* packed, const std::array<std::uint16_t, 16>& values, Out* out) {
  for (int i = 0; i < kMXFP4Group / 2; ++i) {
    store_bits(values[packed[i] & 15], out + 2 * i);
    store_bits(values[packed[i] >> 4], out + 2 * i + 1);
  }
}

/// Scales so large that some codes have no finite value.
Status check_group(const WeightData& w, std::int64_t row, int scale, const std::uint8_t* packed) {
  const std::string where = "tensor " + quote_text(w.name) + ", row " + std::to_string(row);
  if (scale == kMXFP4NaNScale) return Error{where + ": an MXFP4 scale is NaN (byte 255)"};
  const auto& values = kMXFP4Values[static_cast<std::size_t>(scale)];
  for (int i = 0; i < kMXFP4Group / 2; ++i) {
    for (const int code : {packed[i] & 15, packed[i] >> 4}) {
      if ((values[static_cast<std::size_t>(code)] & 0x7f80) == 0x7f80) {
        return Error{where + ": an MXFP4 value exceeds the range of float (scale byte " +
                     std::to_string(scale) + ")"};
      }
    }
  }
  return {};
}

template <class Out>
Status read_mxfp4(const WeightData& w, std::int64_t row_begin, std::int64_t row_count, Out* out) {
  const std::int64_t groups = w.scale.shape.back();
  for (std::int64_t row = row_begin; row < row_begin + row_count; ++row) {
    const std::int64_t stored = w.rows.stored(row);
    const std::uint8_t* packed = w.packed.data + stored * groups * (kMXFP4Group / 2);
    const std::uint8_t* scale = w.scale.data + stored * groups;
    for (std::int64_t g = 0; g < groups; ++g) {
      if (scale[g] >= kMXFP4FirstOverflowingScale) FL_TRY(check_group(w, row, scale[g], packed));
      read_group(packed, kMXFP4Values[scale[g]], out);
      packed += kMXFP4Group / 2;
      out += kMXFP4Group;
    }
  }
  return {};
}

template <class Out>
Status read_rows(const WeightData& w, std::int64_t row_begin, std::int64_t row_count, Out* out) {
  check(row_begin >= 0 && row_count >= 0 && row_begin <= weight_rows(w) - row_count,
        "rows within the weight");
  if (w.format == WeightData::Format::kMXFP4) return read_mxfp4(w, row_begin, row_count, out);
  const std::int64_t width = weight_row_elements(w);
  for (std::int64_t row = row_begin; row < row_begin + row_count;) {
    if (w.rows.transposed) {
      read_column(w, row++, width, out);
      out += width;
      continue;
    }
    const std::int64_t run = w.rows.run(row, row_begin + row_count - row);
    read_plain(w.plain, w.rows.stored(row) * width, run * width, out);
    out += run * width;
    row += run;
  }
  return {};
}

}  // namespace

std::int64_t weight_rows(const WeightData& weight) { return weight.shape.empty() ? 1 : weight.shape.front(); }

std::int64_t weight_row_elements(const WeightData& weight) {
  const std::span<const std::int64_t> shape = weight.shape;
  return shape.empty() ? 1 : element_count(shape.subspan(1));
}

std::int64_t stored_bytes(const WeightData& weight) {
  const std::int64_t elements = element_count(weight.shape);
  if (weight.format == WeightData::Format::kMXFP4) return elements / 2 + elements / kMXFP4Group;
  return elements * static_cast<std::int64_t>(dtype_size(weight.plain.dtype));
}

Status read_rows_f32(const WeightData& weight, std::int64_t row_begin, std::int64_t row_count, float* out) {
  return read_rows(weight, row_begin, row_count, out);
}

Status read_rows_bf16(const WeightData& weight, std::int64_t row_begin, std::int64_t row_count,
                      std::uint16_t* out) {
  return read_rows(weight, row_begin, row_count, out);
}

}  // namespace firstlight
