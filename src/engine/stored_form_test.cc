// Weights that are stored in few bits stay so in memory, with the values that reading them gives.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "checkpoint/stored_sample.h"
#include "engine/weight_source.h"
#include "ops/linear/op.h"
#include "ops/linear/pack_weight.h"

namespace firstlight {
namespace {

using testing::Sample;

struct Case {
  const char* name;
  Packing packing;
  std::int64_t k;
  Quantization quantization;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

constexpr std::int64_t kRows = 70;

std::vector<testing::Stored> stored(const Case& c, std::mt19937& random) {
  const auto bytes = [&](std::int64_t n, unsigned first, unsigned limit) {
    std::vector<std::uint8_t> out(static_cast<std::size_t>(n));
    for (auto& b : out) b = static_cast<std::uint8_t>(first + random() % (limit - first));
    return out;
  };
  const std::int64_t groups = c.k / 32;
  if (c.packing == Packing::kMxfp4) {
    return {{"x_packed", DType::kU8, {kRows, c.k / 2}, bytes(kRows * c.k / 2, 0, 256)},
            {"x_scale", DType::kU8, {kRows, groups}, bytes(kRows * groups, 100, 150)}};
  }
  std::vector<std::uint8_t> shape(16);
  const std::array<std::int64_t, 2> sizes = {kRows, c.k};
  std::memcpy(shape.data(), sizes.data(), shape.size());
  if (c.packing == Packing::kInt4) {
    std::vector<std::uint8_t> scales = bytes(kRows * groups * 2, 0, 256);
    for (std::size_t i = 1; i < scales.size(); i += 2) scales[i] = 0x3c;  // about 0.01
    return {{"x_packed", DType::kI32, {kRows, c.k / 8}, bytes(kRows * c.k / 2, 0, 256)},
            {"x_scale", DType::kBF16, {kRows, groups}, scales},
            {"x_shape", DType::kI64, {2}, shape}};
  }
  std::vector<std::uint8_t> scales = bytes(kRows * 4, 0, 256);
  for (std::size_t i = 3; i < scales.size(); i += 4) scales[i] = 0x3c;
  const std::int64_t words = (c.k + 3) / 4;
  return {{"x_packed", DType::kI32, {kRows, words}, bytes(kRows * words * 4, 1, 256)},
          {"x_scale", DType::kF32, {kRows, 1}, scales},
          {"x_shape", DType::kI64, {2}, shape}};
}

class StoredForm : public ::testing::TestWithParam<Case> {
 protected:
  StoredForm() : sample_(stored(GetParam(), random_)) {
    auto bound = bind_weights(*sample_, {{"x", {kRows, GetParam().k}}}, {}, GetParam().quantization);
    check(bound.ok(), "the sample is bound");
    data_ = bound->weights[0];
  }
  [[nodiscard]] PackedMatrix packed(HeldAs asked, bool f32) const {
    const auto source = make_weight_source(data_, [](const WeightData&) {});
    const NodeSpec node(linear_contract(), {}, {});
    const KernelContext context{.node = node, .weights = {}, .caches = {}, .limits = {}, .f32 = f32};
    auto matrix = pack_weight(*source, context, asked);
    check(matrix.ok(), "the weight is packed");
    return std::move(*matrix);
  }
  /// The largest difference between what is held and what is stored.
  [[nodiscard]] float difference(const PackedMatrix& matrix) const {
    std::vector<float> row(static_cast<std::size_t>(GetParam().k));
    float most = 0;
    for (std::int64_t n = 0; n < kRows; ++n) {
      EXPECT_TRUE(read_rows_f32(data_, n, 1, row.data()).ok());
      for (std::int64_t k = 0; k < GetParam().k; ++k) {
        most = std::max(most, std::abs(matrix.at(n, k) - row[static_cast<std::size_t>(k)]));
      }
    }
    return most;
  }

 private:
  std::mt19937 random_{7};
  Sample sample_;
  WeightData data_;
};

TEST_P(StoredForm, IsHeldAsItIs) {
  const PackedMatrix matrix = packed(HeldAs::kStored, false);
  EXPECT_EQ(matrix.packing(), GetParam().packing);
  EXPECT_EQ(difference(matrix), 0.0F);
}

TEST_P(StoredForm, FourBitsAreNeverWidened) {
  const PackedMatrix matrix = packed(HeldAs::kInt8, false);
  EXPECT_EQ(matrix.packing(), GetParam().packing);
  EXPECT_EQ(difference(matrix), 0.0F);
}

TEST_P(StoredForm, InF32ModeTheValuesAreExactToo) {
  const PackedMatrix matrix = packed(HeldAs::kInt4, true);
  EXPECT_EQ(matrix.packing(), GetParam().packing == Packing::kMxfp4 ? Packing::kBF16 : Packing::kF32);
  EXPECT_EQ(difference(matrix), 0.0F);
}

INSTANTIATE_TEST_SUITE_P(
    Packings, StoredForm,
    ::testing::Values(
        Case{"int8", Packing::kInt8, 90, {.format = WeightFormat::kInt, .block_columns = 0, .bits = 8}},
        Case{"int4", Packing::kInt4, 96, {.format = WeightFormat::kInt, .block_columns = 32, .bits = 4}},
        Case{"mxfp4", Packing::kMxfp4, 96, {.format = WeightFormat::kMXFP4}}));

}  // namespace
}  // namespace firstlight
