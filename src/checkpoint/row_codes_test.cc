// Codes and scales as they are stored: multiplied out, they are what read_rows_f32 gives.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "base/dtype.h"
#include "checkpoint/mxfp4.h"
#include "checkpoint/stored_sample.h"

namespace firstlight {
namespace {

using testing::part_of;
using testing::request;
using testing::Sample;
using testing::Stored;

constexpr Quantization kMxfp4 = {.format = WeightFormat::kMXFP4};
Quantization ints(std::int64_t bits, std::int64_t group) {
  return {.format = WeightFormat::kInt, .block_columns = group, .bits = bits};
}

template <class T>
std::vector<std::uint8_t> bytes_of(const std::vector<T>& values) {
  std::vector<std::uint8_t> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(random_()) % n; }
  std::vector<std::uint8_t> bytes(std::int64_t n, std::int64_t first = 0, std::int64_t limit = 256) {
    std::vector<std::uint8_t> out(static_cast<std::size_t>(n));
    for (auto& b : out) b = static_cast<std::uint8_t>(first + below(limit - first));
    return out;
  }
  /// Not zero, either sign, from tiny to huge.
  float scale() {
    const float size = 1 + static_cast<float>(below(1 << 20)) * 0x1p-20F;
    return std::ldexp(below(2) == 0 ? size : -size, static_cast<int>(below(200)) - 100);
  }

 private:
  std::mt19937 random_;
};

/// Every row of the weight: its codes, multiplied with its scales by `value(code, scales, column)`, have the
/// bits of read_rows_f32.
template <class Value>
void expect_exact(const WeightData& weight, std::int64_t scale_bytes, const Value& value) {
  ASSERT_TRUE(has_row_codes(weight));
  const auto width = static_cast<std::size_t>(weight_row_elements(weight));
  std::vector<float> want(width);
  std::vector<float> got(width);
  std::vector<std::int8_t> codes(width);
  std::vector<std::uint8_t> scales(static_cast<std::size_t>(scale_bytes));
  for (std::int64_t row = 0; row < weight_rows(weight); ++row) {
    ASSERT_TRUE(read_rows_f32(weight, row, 1, want.data()).ok());
    const Status status = read_row_codes(weight, row, codes.data(), scales.data());
    ASSERT_TRUE(status.ok()) << status.error().message;
    for (std::size_t k = 0; k < width; ++k) got[k] = value(codes[k], scales.data(), k);
    ASSERT_EQ(std::memcmp(got.data(), want.data(), width * sizeof(float)), 0)
        << weight.name << " row " << row;
  }
}

template <class T>
T load(const std::uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

TEST(RowCodes, Mxfp4) {
  Draw draw(1);
  for (int round = 0; round < 20; ++round) {
    const std::int64_t experts = 1 + draw.below(3);
    const std::int64_t rows = 2 * (1 + draw.below(5));
    const std::int64_t groups = 1 + draw.below(4);
    const Sample sample(
        {{"x_blocks", DType::kU8, {experts, rows, groups, 16}, draw.bytes(experts * rows * groups * 16)},
         {"x_scales",
          DType::kU8,
          {experts, rows, groups},
          draw.bytes(experts * rows * groups, 0, kMXFP4FirstOverflowingScale)}});
    std::vector<WeightRequest> requests;
    for (std::int64_t e = 0; e < experts; ++e) {
      for (const std::int64_t first : {0, 1}) {
        requests.push_back(request("x", part_of({experts, rows, groups * 32}, {e}, {{first, 1, 2}})));
      }
    }
    const auto bound = bind_weights(*sample, requests, {}, kMxfp4);
    ASSERT_TRUE(bound.ok()) << bound.error().message;
    for (const WeightData& weight : bound->weights) {
      expect_exact(weight, groups, [](int code, const std::uint8_t* scales, std::size_t k) {
        constexpr std::array<double, 8> kSizes = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
        const double size = kSizes[static_cast<std::size_t>(code & 7)];
        return static_cast<float>(std::ldexp((code & 8) != 0 ? -size : size, scales[k / 32] - 127));
      });
    }
  }
}

std::vector<std::uint8_t> shape_bytes(std::int64_t rows, std::int64_t columns) {
  return bytes_of(std::vector<std::int64_t>{rows, columns});
}

TEST(RowCodes, Int4) {
  Draw draw(2);
  for (int round = 0; round < 20; ++round) {
    const std::int64_t rows = 1 + draw.below(9);
    const std::int64_t groups = 1 + draw.below(5);
    std::vector<std::uint16_t> scales;
    for (std::int64_t i = 0; i < rows * groups; ++i) scales.push_back(f32_to_bf16(draw.scale()));
    const Sample sample({{"x_packed", DType::kI32, {rows, groups * 4}, draw.bytes(rows * groups * 16)},
                         {"x_scale", DType::kBF16, {rows, groups}, bytes_of(scales)},
                         {"x_shape", DType::kI64, {2}, shape_bytes(rows, groups * 32)}});
    const auto bound = bind_weights(*sample, {{"x", {rows, groups * 32}}}, {}, ints(4, 32));
    ASSERT_TRUE(bound.ok()) << bound.error().message;
    expect_exact(bound->weights[0], groups * 2, [](int code, const std::uint8_t* s, std::size_t k) {
      return static_cast<float>(code) * bf16_to_f32(load<std::uint16_t>(s + k / 32 * 2));
    });
  }
}

TEST(RowCodes, Int8) {
  Draw draw(3);
  for (int round = 0; round < 30; ++round) {
    const std::int64_t rows = 1 + draw.below(9);
    const std::int64_t columns = 1 + draw.below(40);
    const std::int64_t words = (columns + 3) / 4;
    const DType type =
        std::array{DType::kF32, DType::kBF16, DType::kF16}[static_cast<std::size_t>(round % 3)];
    std::vector<float> wide;
    std::vector<std::uint16_t> narrow;
    for (std::int64_t i = 0; i < rows; ++i) {
      wide.push_back(draw.scale());
      narrow.push_back(type == DType::kBF16 ? f32_to_bf16(wide.back())
                                            : static_cast<std::uint16_t>(0x0400 + draw.below(0x7000)));
    }
    const Sample sample(
        {{"x_packed", DType::kI32, {rows, words}, draw.bytes(rows * words * 4, 1)},
         {"x_scale", type, {rows, 1}, type == DType::kF32 ? bytes_of(wide) : bytes_of(narrow)},
         {"x_shape", DType::kI64, {2}, shape_bytes(rows, columns)}});
    const auto bound = bind_weights(*sample, {{"x", {rows, columns}}}, {}, ints(8, 0));
    ASSERT_TRUE(bound.ok()) << bound.error().message;
    expect_exact(bound->weights[0], 4, [](int code, const std::uint8_t* s, std::size_t) {
      return static_cast<float>(code) * load<float>(s);
    });
  }
}

WeightData bound_alone(const Sample& sample, Shape shape, const Quantization& quantization) {
  const auto bound = bind_weights(*sample, {{"x", std::move(shape)}}, {}, quantization);
  check(bound.ok(), "the sample is bound");
  return bound->weights[0];
}

TEST(RowCodes, OnlyWhatKernelsHoldAsItIs) {
  // -128 has no opposite in 8 bits.
  std::vector<std::uint8_t> codes(8, 1);
  const auto int8 = [&](std::int64_t groups) {
    return Sample({{"x_packed", DType::kI32, {2, 1}, codes},
                   {"x_scale", DType::kF32, {2, groups}},
                   {"x_shape", DType::kI64, {2}, shape_bytes(2, 4)}});
  };
  EXPECT_TRUE(has_row_codes(bound_alone(int8(1), {2, 4}, ints(8, 0))));
  EXPECT_FALSE(has_row_codes(bound_alone(int8(2), {2, 4}, ints(8, 2))));
  codes[6] = 0;
  EXPECT_FALSE(has_row_codes(bound_alone(int8(1), {2, 4}, ints(8, 0))));
  // The padding of a row is none of its codes.
  EXPECT_TRUE(has_row_codes(bound_alone(Sample({{"x_packed", DType::kI32, {2, 1}, {1, 1, 1, 0, 1, 1, 1, 0}},
                                                {"x_scale", DType::kF32, {2, 1}},
                                                {"x_shape", DType::kI64, {2}, shape_bytes(2, 3)}}),
                                        {2, 3}, ints(8, 0))));
  const auto int4 = [](DType scale, std::int64_t group) {
    return Sample({{"x_packed", DType::kI32, {2, 8}},
                   {"x_scale", scale, {2, 64 / group}},
                   {"x_shape", DType::kI64, {2}, shape_bytes(2, 64)}});
  };
  EXPECT_TRUE(has_row_codes(bound_alone(int4(DType::kBF16, 32), {2, 64}, ints(4, 32))));
  EXPECT_FALSE(has_row_codes(bound_alone(int4(DType::kF16, 32), {2, 64}, ints(4, 32))));
  EXPECT_FALSE(has_row_codes(bound_alone(int4(DType::kBF16, 64), {2, 64}, ints(4, 64))));
  EXPECT_FALSE(has_row_codes(bound_alone(Sample({{"x", DType::kBF16, {2, 2}}}), {2, 2}, {})));
}

TEST(RowCodes, ScalesThatAreNoNumbersAreErrors) {
  const float infinite = std::numeric_limits<float>::infinity();
  std::vector<std::int8_t> codes(64);
  std::vector<std::uint8_t> scales(64);
  for (const float bad : {infinite, std::nanf(""), 0x1p121F}) {
    const Sample channel({{"x_packed", DType::kI32, {2, 1}, std::vector<std::uint8_t>(8, 1)},
                          {"x_scale", DType::kF32, {2, 1}, bytes_of(std::vector<float>{1, bad})},
                          {"x_shape", DType::kI64, {2}, shape_bytes(2, 4)}});
    const WeightData weight = bound_alone(channel, {2, 4}, ints(8, 0));
    EXPECT_TRUE(read_row_codes(weight, 0, codes.data(), scales.data()).ok());
    EXPECT_EQ(read_row_codes(weight, 1, codes.data(), scales.data()).ok(), bad == 0x1p121F);
  }
  const Sample grouped(
      {{"x_packed", DType::kI32, {1, 8}},
       {"x_scale", DType::kBF16, {1, 2}, bytes_of(std::vector<std::uint16_t>{0x3f80, f32_to_bf16(infinite)})},
       {"x_shape", DType::kI64, {2}, shape_bytes(1, 64)}});
  EXPECT_ERROR(read_row_codes(bound_alone(grouped, {1, 64}, ints(4, 32)), 0, codes.data(), scales.data()),
               "tensor \"x\", row 0: a scale is not a number, or too large, in column 32");
  const Sample blocks({{"x_blocks", DType::kU8, {1, 1, 16}}, {"x_scales", DType::kU8, {1, 1}, {255}}});
  EXPECT_ERROR(read_row_codes(bound_alone(blocks, {1, 32}, kMxfp4), 0, codes.data(), scales.data()),
               "tensor \"x\", row 0: an MXFP4 scale is NaN");
}

}  // namespace
}  // namespace firstlight
