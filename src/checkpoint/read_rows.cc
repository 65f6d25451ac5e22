#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/json_limits.h"
#include "checkpoint/mxfp4.h"
#include "checkpoint/weights.h"

namespace firstlight {

namespace {

constexpr auto kFP8Values = [] {
  std::array<float, 256> table{};
  for (std::size_t code = 0; code < 256; ++code) table[code] = f8e4m3_to_f32(static_cast<std::uint8_t>(code));
  return table;
}();

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
  for (std::int64_t k = 0; k < width; ++k) read_plain(w.data, begin + k * w.rows.slice_rows, 1, out + k);
}

/// The scales of one row of a weight, by block of columns.
class ScaleRow {
 public:
  ScaleRow(const WeightData& w, std::int64_t row) : dtype_(w.scale.dtype) {
    const std::int64_t blocks = (weight_row_elements(w) + w.block_columns - 1) / w.block_columns;
    const std::int64_t slice_blocks = (w.rows.slice_rows + w.block_rows - 1) / w.block_rows;
    const std::int64_t stored = w.rows.slice * slice_blocks + w.rows.in_slice(row) / w.block_rows;
    data_ = w.scale.data + stored * blocks * static_cast<std::int64_t>(dtype_size(dtype_));
  }

  [[nodiscard]] float at(std::int64_t block) const {
    switch (dtype_) {
      case DType::kF32:
        return load<float>(data_ + 4 * block);
      case DType::kBF16:
        return bf16_to_f32(load<std::uint16_t>(data_ + 2 * block));
      case DType::kF16:
        return f16_to_f32(load<std::uint16_t>(data_ + 2 * block));
      case DType::kF8E8M0:
        return f8e8m0_to_f32(data_[block]);
      default:
        check(false, "a type of scales");
        return 0;
    }
  }

 private:
  DType dtype_;
  const std::uint8_t* data_ = nullptr;
};

/// E4M3 has 4 significant bits and exponents from -9 to 8, bf16 has 8 bits: a scale of up to 4 significant
/// bits far from the ends of the range keeps every product exact.
bool keeps_fp8_exact(float scale) {
  const auto bits = std::bit_cast<std::uint32_t>(scale);
  const std::uint32_t exponent = (bits >> 23) & 255U;
  return (bits & 0xfffffU) == 0 && exponent >= 20 && exponent <= 240;
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

Error row_error(const WeightData& w, std::int64_t row, const std::string& what) {
  return Error{"tensor " + quote_text(w.name) + ", row " + std::to_string(row) + ": " + what};
}

/// Scales so large that some codes have no finite value.
Status check_group(const WeightData& w, std::int64_t row, int scale, const std::uint8_t* packed) {
  if (scale == kMXFP4NaNScale) return row_error(w, row, "an MXFP4 scale is NaN (byte 255)");
  const auto& values = kMXFP4Values[static_cast<std::size_t>(scale)];
  for (int i = 0; i < kMXFP4Group / 2; ++i) {
    for (const int code : {packed[i] & 15, packed[i] >> 4}) {
      if ((values[static_cast<std::size_t>(code)] & 0x7f80) == 0x7f80) {
        return row_error(
            w, row, "an MXFP4 value exceeds the range of float (scale byte " + std::to_string(scale) + ")");
      }
    }
  }
  return {};
}

template <class Out>
Status read_mxfp4(const WeightData& w, std::int64_t row, std::int64_t columns, Out* out) {
  const std::int64_t groups = columns / kMXFP4Group;
  const std::int64_t stored = w.rows.stored(row);
  const std::uint8_t* packed = w.data.data + stored * groups * (kMXFP4Group / 2);
  const std::uint8_t* scale = w.scale.data + stored * groups;
  for (std::int64_t g = 0; g < groups; ++g) {
    if (scale[g] >= kMXFP4FirstOverflowingScale) FL_TRY(check_group(w, row, scale[g], packed));
    read_group(packed, kMXFP4Values[scale[g]], out);
    packed += kMXFP4Group / 2;
    out += kMXFP4Group;
  }
  return {};
}

/// Codes of one row times their scales, in f32. Each product is stored, and whether one of them is no number
/// is looked at afterwards.
template <class Code, class Out>
Status scale_row(const WeightData& w, std::int64_t row, std::int64_t columns, const Code& code, Out* out) {
  const ScaleRow scales(w, row);
  constexpr std::uint32_t kExponent = 0x7f800000U;  // all ones: infinite or NaN
  bool finite = true;
  for (std::int64_t begin = 0; begin < columns; begin += w.block_columns) {
    const float scale = scales.at(begin / w.block_columns);
    const std::int64_t end = std::min(columns, begin + w.block_columns);
    for (std::int64_t k = begin; k < end; ++k) {
      const float value = code(k) * scale;
      finite &= (std::bit_cast<std::uint32_t>(value) & kExponent) != kExponent;
      store(value, out + k);
    }
  }
  if (finite) return {};
  for (std::int64_t k = 0;; ++k) {
    const float scale = scales.at(k / w.block_columns);
    const std::string where = " in column " + std::to_string(k);
    if (std::isnan(code(k))) return row_error(w, row, "a code is NaN" + where);
    if (!std::isfinite(scale)) return row_error(w, row, "the scale is not a finite number" + where);
    if (!std::isfinite(code(k) * scale))
      return row_error(w, row, "a value exceeds the range of float" + where);
  }
}

template <class Out>
Status read_fp8(const WeightData& w, std::int64_t row, std::int64_t columns, Out* out) {
  const std::uint8_t* const codes = w.data.data + w.rows.stored(row) * columns;
  return scale_row(
      w, row, columns, [codes](std::int64_t k) { return kFP8Values[codes[k]]; }, out);
}

/// Codes fill 32 bit words from the lowest bits on; a code is the integer plus half of the range.
template <int kBits, class Out>
Status read_ints(const WeightData& w, std::int64_t row, std::int64_t columns, Out* out) {
  constexpr int kPerByte = 8 / kBits;  // words are little-endian: code k is in byte k / kPerByte
  const std::int64_t row_bytes = (columns + 4 * kPerByte - 1) / (4 * kPerByte) * 4;
  const std::uint8_t* const codes = w.data.data + w.rows.stored(row) * row_bytes;
  const auto code = [codes](std::int64_t k) {
    const int bits = (codes[k / kPerByte] >> (k % kPerByte * kBits)) & ((1 << kBits) - 1);
    return static_cast<float>(bits - (1 << (kBits - 1)));
  };
  return scale_row(w, row, columns, code, out);
}

template <class Out>
Status read_packed_row(const WeightData& w, std::int64_t row, std::int64_t columns, Out* out) {
  switch (w.format) {
    case WeightFormat::kFP8:
      return read_fp8(w, row, columns, out);
    case WeightFormat::kInt:
      return w.bits == 8 ? read_ints<8>(w, row, columns, out) : read_ints<4>(w, row, columns, out);
    case WeightFormat::kMXFP4:
      return read_mxfp4(w, row, columns, out);
    case WeightFormat::kPlain:
      break;
  }
  check(false, "a packed format");
  return {};
}

template <class Out>
Status read_rows(const WeightData& w, std::int64_t row_begin, std::int64_t row_count, Out* out) {
  check(row_begin >= 0 && row_count >= 0 && row_begin <= weight_rows(w) - row_count,
        "rows within the weight");
  const std::int64_t width = weight_row_elements(w);
  for (std::int64_t row = row_begin; row < row_begin + row_count;) {
    std::int64_t run = 1;
    if (w.format != WeightFormat::kPlain) {
      FL_TRY(read_packed_row(w, row, width, out));
    } else if (w.rows.transposed) {
      read_column(w, row, width, out);
    } else {
      run = w.rows.run(row, row_begin + row_count - row);
      read_plain(w.data, w.rows.stored(row) * width, run * width, out);
    }
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
  if (weight.format == WeightFormat::kPlain) {
    return elements * static_cast<std::int64_t>(dtype_size(weight.data.dtype));
  }
  const std::int64_t bits = weight.format == WeightFormat::kFP8   ? 8
                            : weight.format == WeightFormat::kInt ? weight.bits
                                                                  : 4;
  const std::int64_t scales = elements / (weight.block_rows * weight.block_columns);
  return elements * bits / 8 + scales * static_cast<std::int64_t>(dtype_size(weight.scale.dtype));
}

std::array<std::span<const std::uint8_t>, 2> stored_spans(const WeightData& weight) {
  // A slice is the unit: interleaved parts of one lie in the same pages.
  const auto slice = [&](const TensorView& tensor) -> std::span<const std::uint8_t> {
    if (tensor.data == nullptr) return {};
    const auto bytes = static_cast<std::size_t>(tensor.bytes());
    const std::size_t length = bytes / static_cast<std::size_t>(weight.rows.slices);
    return std::span(tensor.data, bytes)
        .subspan(static_cast<std::size_t>(weight.rows.slice) * length, length);
  };
  return {slice(weight.data), slice(weight.scale)};
}

const std::uint8_t* stored_row(const WeightData& weight, std::int64_t row, DType type) {
  check(row >= 0 && row < weight_rows(weight), "a row of the weight");
  if (weight.format != WeightFormat::kPlain || weight.data.dtype != type || weight.rows.transposed)
    return nullptr;
  const std::int64_t bytes = weight_row_elements(weight) * static_cast<std::int64_t>(dtype_size(type));
  return weight.data.data + weight.rows.stored(row) * bytes;
}

bool is_exact_in_bf16(const WeightData& weight) {
  switch (weight.format) {
    case WeightFormat::kPlain:
      return weight.data.dtype == DType::kBF16;
    case WeightFormat::kMXFP4:
      return true;
    case WeightFormat::kInt:
      return false;  // 4 or 8 bits times the 8 of a bf16 scale
    case WeightFormat::kFP8:
      break;
  }
  const std::int64_t blocks = (weight_row_elements(weight) + weight.block_columns - 1) / weight.block_columns;
  std::int64_t last = -1;
  for (std::int64_t row = 0; row < weight_rows(weight); ++row) {
    const std::int64_t block = weight.rows.in_slice(row) / weight.block_rows;
    if (std::exchange(last, block) == block) continue;
    const ScaleRow scales(weight, row);
    for (std::int64_t b = 0; b < blocks; ++b) {
      if (!keeps_fp8_exact(scales.at(b))) return false;
    }
  }
  return true;
}

bool has_row_codes(const WeightData& weight) {
  if (weight.format == WeightFormat::kMXFP4) return true;
  if (weight.format != WeightFormat::kInt) return false;
  const std::int64_t width = weight_row_elements(weight);
  if (weight.bits == 4) return weight.block_columns == 32 && weight.scale.dtype == DType::kBF16;
  if (weight.block_columns < width) return false;
  // Kernels multiply the size of a code with a sign, which -128 does not have.
  for (std::int64_t row = 0; row < weight_rows(weight); ++row) {
    const std::uint8_t* const codes = weight.data.data + weight.rows.stored(row) * ((width + 3) / 4 * 4);
    if (std::memchr(codes, 0, static_cast<std::size_t>(width)) != nullptr) return false;
  }
  return true;
}

Status read_row_codes(const WeightData& weight, std::int64_t row, std::int8_t* codes, std::uint8_t* scales) {
  const std::int64_t width = weight_row_elements(weight);
  const std::int64_t stored = weight.rows.stored(row);
  if (weight.format == WeightFormat::kMXFP4) {
    const std::int64_t groups = width / kMXFP4Group;
    const std::uint8_t* const packed = weight.data.data + stored * width / 2;
    std::copy_n(weight.scale.data + stored * groups, groups, scales);
    for (std::int64_t g = 0; g < groups; ++g) {
      if (scales[g] >= kMXFP4FirstOverflowingScale) {
        FL_TRY(check_group(weight, row, scales[g], packed + g * kMXFP4Group / 2));
      }
    }
    for (std::int64_t i = 0; i < width / 2; ++i) {
      codes[2 * i] = static_cast<std::int8_t>(packed[i] & 15);
      codes[2 * i + 1] = static_cast<std::int8_t>(packed[i] >> 4);
    }
    return {};
  }
  const ScaleRow row_scales(weight, row);
  for (std::int64_t begin = 0; begin < width; begin += weight.block_columns) {
    const std::int64_t block = begin / weight.block_columns;
    const float scale = row_scales.at(block);
    const float most = scale * (weight.bits == 4 ? -8.0F : -127.0F);
    if (!std::isfinite(most)) {
      return row_error(weight, row,
                       "a scale is not a number, or too large, in column " + std::to_string(begin));
    }
    if (weight.bits == 4) {
      const std::uint16_t half = f32_to_bf16(scale);
      std::memcpy(scales + 2 * block, &half, sizeof(half));
    } else {
      std::memcpy(scales, &scale, sizeof(scale));
    }
  }
  const int per_byte = static_cast<int>(8 / weight.bits);
  const std::uint8_t* const packed =
      weight.data.data + stored * ((width + 4 * per_byte - 1) / (4 * per_byte) * 4);
  for (std::int64_t k = 0; k < width; ++k) {
    const int bits = weight.bits == 8 ? packed[k] : (packed[k / 2] >> (k % 2 * 4)) & 15;
    codes[k] = static_cast<std::int8_t>(bits - (weight.bits == 8 ? 128 : 8));
  }
  return {};
}

Status read_rows_f32(const WeightData& weight, std::int64_t row_begin, std::int64_t row_count, float* out) {
  return read_rows(weight, row_begin, row_count, out);
}

Status read_rows_bf16(const WeightData& weight, std::int64_t row_begin, std::int64_t row_count,
                      std::uint16_t* out) {
  return read_rows(weight, row_begin, row_count, out);
}

}  // namespace firstlight
