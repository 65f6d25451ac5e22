// FP8, packed integers and MXFP4 against what the libraries that define them make of the same bytes, and
// against scalar formulas.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "checkpoint/stored_sample.h"

namespace firstlight {
namespace {

using testing::contains;
using testing::part_of;
using testing::request;
using testing::Sample;
using testing::Stored;

const Quantization kFp8 = {.format = WeightFormat::kFP8, .block_rows = 16, .block_columns = 24};
const Quantization kInt4 = {.format = WeightFormat::kInt, .block_columns = 32, .bits = 4};

std::vector<float> values_of(const WeightData& weight) {
  std::vector<float> out(static_cast<std::size_t>(element_count(weight.shape)));
  const Status status = read_rows_f32(weight, 0, weight_rows(weight), out.data());
  EXPECT_TRUE(status.ok()) << status.error().message;
  return out;
}

class FormatGoldens : public ::testing::Test {
 protected:
  /// Reads every weight of the set, stacks slice by slice, and compares bit for bit.
  static void compare(const std::string& set, const Quantization& quantization, std::size_t weights) {
    const std::string folder = std::string(FL_REPO_ROOT) + "/tests/data/formats/" + set;
    const auto checkpoint = Checkpoint::open(folder);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    const auto expect = open_safetensors(folder + "/expect.safetensors");
    ASSERT_TRUE(expect.ok()) << expect.error().message;
    std::vector<WeightRequest> requests;
    std::vector<const std::uint8_t*> want;
    for (const NamedTensor& t : expect->content.tensors) {
      const Shape& shape = t.view.shape;
      if (shape.size() == 2) {
        requests.push_back({t.name, shape});
        want.push_back(t.view.data);
        continue;
      }
      for (std::int64_t e = 0; e < shape[0]; ++e) {
        requests.push_back(request(t.name, part_of(shape, {e})));
        want.push_back(t.view.data + e * shape[1] * shape[2] * 4);
      }
    }
    const auto bound = bind_weights(*checkpoint, requests, {}, quantization);
    ASSERT_TRUE(bound.ok()) << bound.error().message;
    ASSERT_EQ(bound->weights.size(), weights);
    for (std::size_t w = 0; w < weights; ++w) {
      const WeightData& weight = bound->weights[w];
      EXPECT_EQ(weight.format, quantization.format);
      const std::vector<float> got = values_of(weight);
      EXPECT_EQ(std::memcmp(got.data(), want[w], got.size() * 4), 0) << weight.name;
      std::vector<std::uint16_t> bf16(got.size());
      ASSERT_TRUE(read_rows_bf16(weight, 0, weight_rows(weight), bf16.data()).ok());
      bool exact = true;
      for (std::size_t i = 0; i < got.size(); ++i) {
        EXPECT_EQ(bf16[i], f32_to_bf16(got[i]));
        exact = exact && bf16_to_f32(bf16[i]) == got[i];
      }
      EXPECT_TRUE(exact || !is_exact_in_bf16(weight)) << weight.name;
      EXPECT_TRUE(weight.scale.dtype != DType::kF8E8M0 || is_exact_in_bf16(weight)) << weight.name;
    }
  }
};

TEST_F(FormatGoldens, Fp8) { compare("fp8", kFp8, 7); }
TEST_F(FormatGoldens, Int4) { compare("int4", kInt4, 3); }
TEST_F(FormatGoldens, Int8) {
  compare("int8", {.format = WeightFormat::kInt, .block_columns = 32, .bits = 8}, 3);
}
TEST_F(FormatGoldens, Int4ByChannels) {
  compare("int4_channel", {.format = WeightFormat::kInt, .bits = 4}, 1);
}
TEST_F(FormatGoldens, Mxfp4Blocks) { compare("mxfp4", {.format = WeightFormat::kMXFP4}, 3); }

TEST(Fp8, EveryCodeIsWhatItsBitsSay) {
  for (int code = 0; code < 256; ++code) {
    const float value = f8e4m3_to_f32(static_cast<std::uint8_t>(code));
    const int exponent = (code >> 3) & 15;
    const int mantissa = code & 7;
    if ((code & 127) == 127) {
      EXPECT_TRUE(std::isnan(value));
      continue;
    }
    const double magnitude =
        exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    EXPECT_EQ(static_cast<double>(value), code < 128 ? magnitude : -magnitude) << code;
    EXPECT_EQ(std::signbit(value), code >= 128);
  }
  for (int code = 0; code < 255; ++code) {
    EXPECT_EQ(static_cast<double>(f8e8m0_to_f32(static_cast<std::uint8_t>(code))),
              std::ldexp(1.0, code - 127));
  }
  EXPECT_TRUE(std::isnan(f8e8m0_to_f32(255)));
}

std::vector<std::uint8_t> bytes_of(const std::vector<float>& values) {
  std::vector<std::uint8_t> bytes(values.size() * 4);
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

TEST(Fp8, RandomShapesBlocksAndParts) {
  std::mt19937 random(11);
  const auto below = [&random](std::int64_t n) { return static_cast<std::int64_t>(random()) % n; };
  for (int round = 0; round < 40; ++round) {
    const std::int64_t experts = 1 + below(3);
    const std::int64_t rows = 2 * (1 + below(9));
    const std::int64_t columns = 1 + below(40);
    const Quantization quantization = {
        .format = WeightFormat::kFP8, .block_rows = below(7), .block_columns = below(17)};
    const std::int64_t block_rows = quantization.block_rows == 0 ? rows : quantization.block_rows;
    const std::int64_t block_columns = quantization.block_columns == 0 ? columns : quantization.block_columns;
    const std::int64_t grid_rows = (rows + block_rows - 1) / block_rows;
    const std::int64_t grid_columns = (columns + block_columns - 1) / block_columns;
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(experts * rows * columns));
    for (auto& c : codes) c = static_cast<std::uint8_t>(random() % 127 + (random() % 2) * 128);
    std::vector<float> scales(static_cast<std::size_t>(experts * grid_rows * grid_columns));
    for (float& s : scales)
      s = std::ldexp(static_cast<float>(random() % 1000), static_cast<int>(below(60)) - 30);
    const Shape full = {experts, rows, columns};
    const Sample sample({{"x", DType::kF8E4M3, full, codes},
                         {"x_scale_inv", DType::kF32, {experts, grid_rows, grid_columns}, bytes_of(scales)}});
    const std::int64_t expert = below(experts);
    const std::int64_t odd = below(2);
    const auto bound = bind_weights(
        *sample, {request("x", part_of({full}, {expert}, {{odd, 1, 2}})), {"x", full}}, {}, quantization);
    // The whole stack is no matrix.
    EXPECT_ERROR(bound, "which FP8 cannot hold (a matrix)");
    std::vector<WeightRequest> requests;
    for (std::int64_t e = 0; e < experts; ++e) {
      for (std::int64_t first : {0, 1}) requests.push_back(request("x", part_of(full, {e}, {{first, 1, 2}})));
    }
    const auto parts = bind_weights(*sample, requests, {}, quantization);
    ASSERT_TRUE(parts.ok()) << parts.error().message;
    const WeightData& weight = parts->weights[static_cast<std::size_t>(2 * expert + odd)];
    const std::vector<float> got = values_of(weight);
    for (std::int64_t r = 0; r < rows / 2; ++r) {
      const std::int64_t row = 2 * r + odd;
      for (std::int64_t k = 0; k < columns; ++k) {
        const std::uint8_t code = codes[static_cast<std::size_t>((expert * rows + row) * columns + k)];
        const std::int64_t block = (expert * grid_rows + row / block_rows) * grid_columns + k / block_columns;
        EXPECT_EQ(got[static_cast<std::size_t>(r * columns + k)],
                  f8e4m3_to_f32(code) * scales[static_cast<std::size_t>(block)]);
      }
    }
  }
}

TEST(Fp8, ExactInBf16WhenTheScalesAreShort) {
  for (const auto& [scale, exact] : std::vector<std::pair<float, bool>>{{1.0F, true},
                                                                        {0x1p-100F, true},
                                                                        {1.875F, true},
                                                                        {1.9375F, false},
                                                                        {0.1F, false},
                                                                        {0x1p-126F, false},
                                                                        {0x1p120F, false}}) {
    const Sample sample({{"x", DType::kF8E4M3, {2, 2}, {1, 2, 3, 4}},
                         {"x_scale_inv", DType::kF32, {1, 1}, bytes_of({scale})}});
    const auto bound = bind_weights(*sample, {{"x", {2, 2}}}, {}, kFp8);
    ASSERT_TRUE(bound.ok()) << bound.error().message;
    EXPECT_EQ(is_exact_in_bf16(bound->weights[0]), exact) << scale;
  }
}

TEST(Fp8, WhatIsNoNumberNamesTheTensorAndTheRow) {
  const float infinite = std::numeric_limits<float>::infinity();
  const std::vector<std::uint8_t> good = {0, 8, 0x7e, 0xfe};
  struct Case {
    std::vector<std::uint8_t> codes;
    float scale;
    const char* error;
  };
  for (const Case& c : {Case{{0, 1, 2, 0x7f}, 1, "tensor \"x\", row 1: a code is NaN in column 1"},
                        Case{{0, 0xff, 2, 0}, 1, "tensor \"x\", row 0: a code is NaN in column 1"},
                        Case{good, infinite, "row 0: the scale is not a finite number in column 0"},
                        Case{good, std::nanf(""), "row 0: the scale is not a finite number"},
                        Case{good, 0x1p120F, "row 1: a value exceeds the range of float in column 0"},
                        Case{good, 0x1p119F, nullptr}, Case{good, -0.0F, nullptr}}) {
    const Sample sample(
        {{"x", DType::kF8E4M3, {2, 2}, c.codes}, {"x_scale_inv", DType::kF32, {1, 1}, bytes_of({c.scale})}});
    const auto bound = bind_weights(*sample, {{"x", {2, 2}}}, {}, kFp8);
    ASSERT_TRUE(bound.ok()) << bound.error().message;
    std::vector<float> out(4);
    std::vector<std::uint16_t> bf16(4);
    const Status status = read_rows_f32(bound->weights[0], 0, 2, out.data());
    EXPECT_EQ(status.ok(), read_rows_bf16(bound->weights[0], 0, 2, bf16.data()).ok());
    if (c.error == nullptr) {
      EXPECT_TRUE(status.ok()) << status.error().message;
    } else {
      EXPECT_ERROR(status, c.error);
    }
  }
  const Sample nan({{"x", DType::kF8E4M3, {1, 2}, {1, 2}}, {"x_scale_inv", DType::kF8E8M0, {1, 1}, {255}}});
  const auto bound = bind_weights(*nan, {{"x", {1, 2}}}, {}, kFp8);
  ASSERT_TRUE(bound.ok());
  std::vector<float> out(2);
  EXPECT_ERROR(read_rows_f32(bound->weights[0], 0, 1, out.data()),
               "tensor \"x\", row 0: the scale is not a finite");
}

TEST(Formats, PiecesAreCheckedByName) {
  const Stored codes{"x.weight", DType::kF8E4M3, {20, 30}};
  const Stored scales{"x.weight_scale_inv", DType::kF32, {2, 2}};
  const std::vector<WeightRequest> wanted = {{"x.weight", {20, 30}}};
  EXPECT_TRUE(bind_weights(*Sample({codes, scales}), wanted, {}, kFp8).ok());
  EXPECT_ERROR(bind_weights(*Sample({codes}), wanted, {}, kFp8),
               "missing tensors (1): \"x.weight_scale_inv\"");
  EXPECT_ERROR(bind_weights(*Sample({scales}), wanted, {}, kFp8), "missing tensors (1): \"x.weight\"");
  EXPECT_ERROR(
      bind_weights(*Sample({codes, scales, {"x.weight_scale", DType::kF32, {2, 2}}}), wanted, {}, kFp8),
      "does not use (1): \"x.weight_scale\"");
  EXPECT_ERROR(bind_weights(*Sample({codes, {"x.weight_scale_inv", DType::kF32, {2, 3}}}), wanted, {}, kFp8),
               "\"x.weight_scale_inv\" has [2, 3], expected [2, 2]");
  EXPECT_ERROR(bind_weights(*Sample({codes, {"x.weight_scale_inv", DType::kI32, {2, 2}}}), wanted, {}, kFp8),
               "\"x.weight_scale_inv\" is I32, expected BF16 or F16 or F32 or F8_E8M0");
  EXPECT_ERROR(bind_weights(*Sample({{"x.weight", DType::kBF16, {20, 30}}, scales}), wanted, {}, kFp8),
               "does not use (1): \"x.weight_scale_inv\"");
  EXPECT_ERROR(
      bind_weights(*Sample({{"x.weight", DType::kF8E4M3, {20}}, scales}), {{"x.weight", {20}}}, {}, kFp8),
      "which FP8 cannot hold (a matrix)");

  const Stored words{"y_packed", DType::kI32, {2, 8}};
  const Stored groups{"y_scale", DType::kBF16, {2, 2}};
  const auto said = [](std::uint8_t rows, std::uint8_t columns) {
    return Stored{"y_shape", DType::kI64, {2}, {rows, 0, 0, 0, 0, 0, 0, 0, columns}};
  };
  EXPECT_TRUE(bind_weights(*Sample({words, groups, said(2, 64)}), {{"y", {2, 64}}}, {}, kInt4).ok());
  EXPECT_TRUE(bind_weights(*Sample({words, groups, {"y_shape", DType::kI32, {2}, {2, 0, 0, 0, 64}}}),
                           {{"y", {2, 64}}}, {}, kInt4)
                  .ok());
  EXPECT_ERROR(bind_weights(*Sample({words, groups, said(2, 63)}), {{"y", {2, 64}}}, {}, kInt4),
               "\"y_shape\" says [2, 63], expected [2, 64] in model.safetensors");
  EXPECT_ERROR(bind_weights(*Sample({words, groups}), {{"y", {2, 64}}}, {}, kInt4),
               "missing tensors (1): \"y_shape\"");
  EXPECT_ERROR(bind_weights(*Sample({groups}), {{"y", {2, 64}}}, {}, kInt4),
               "missing tensors (2): \"y_packed\"");
  EXPECT_ERROR(bind_weights(*Sample({words, groups, said(2, 64), {"y_zero_point", DType::kI32, {1, 2}}}),
                            {{"y", {2, 64}}}, {}, kInt4),
               "does not use (1): \"y_zero_point\"");
  EXPECT_ERROR(bind_weights(*Sample({words, groups, said(2, 48)}), {{"y", {2, 48}}}, {}, kInt4),
               "which INT4 cannot hold (a matrix, columns a multiple of 32)");
}

TEST(StoredRow, IsWhereTheRowLiesWhenItLiesThere) {
  std::vector<std::uint8_t> data(2 * 4 * 3 * 2);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::uint8_t>(i);
  const Sample sample({{"x", DType::kBF16, {2, 4, 3}, data},
                       {"y", DType::kBF16, {2, 2}},
                       {"z", DType::kF8E4M3, {2, 2}},
                       {"z_scale_inv", DType::kF32, {1, 1}}});
  const auto bound = bind_weights(*sample,
                                  {request("x", part_of({2, 4, 3}, {1}, {{1, 1, 2}})),
                                   {"x", {2, 4, 3}},
                                   request("y", part_of({2, 2}, {}, std::nullopt, true)),
                                   {"z", {2, 2}}},
                                  {}, kFp8);
  ASSERT_TRUE(bound.ok()) << bound.error().message;
  const auto& w = bound->weights;
  EXPECT_EQ(*stored_row(w[0], 1, DType::kBF16), (4 + 3) * 3 * 2);
  EXPECT_EQ(*stored_row(w[1], 1, DType::kBF16), 4 * 3 * 2);
  EXPECT_EQ(stored_row(w[0], 1, DType::kF32), nullptr);
  EXPECT_EQ(stored_row(w[2], 1, DType::kBF16), nullptr);
  EXPECT_EQ(stored_row(w[3], 1, DType::kF8E4M3), nullptr);
  EXPECT_EQ(stored_spans(w[0])[0].data(), w[0].data.data + 24);
  EXPECT_EQ(stored_spans(w[0])[0].size(), 24U);
  EXPECT_EQ(stored_spans(w[3])[1].size(), 4U);
}

TEST(Formats, OnlyTheDeclaredFormatAndOnlyWhereItIsDeclared) {
  const Sample sample({{"a.b.weight", DType::kF8E4M3, {2, 2}},
                       {"a.b.weight_scale_inv", DType::kF32, {1, 1}},
                       {"a.c.weight", DType::kBF16, {2}}});
  const std::vector<WeightRequest> wanted = {{"a.b.weight", {2, 2}}, {"a.c.weight", {2}}};
  EXPECT_TRUE(bind_weights(*sample, wanted, {}, kFp8).ok());
  EXPECT_ERROR(
      bind_weights(*sample, wanted),
      "tensors of a format that config.json does not declare (1): \"a.b.weight\" is stored as fp8, but "
      "config.json has no `quantization_config` in model.safetensors");
  EXPECT_ERROR(bind_weights(*sample, wanted, {}, kInt4), "but `quantization_config` declares int");
  Quantization excluding = kFp8;
  excluding.not_converted = {"c", "re:.*b$"};
  EXPECT_ERROR(bind_weights(*sample, wanted, {}, excluding),
               "\"a.b.weight\" is stored as fp8, but `quantization_config` excludes \"re:.*b$\"");
  excluding.not_converted = {"re:(", "b"};
  EXPECT_ERROR(bind_weights(*sample, wanted, {}, excluding),
               "has \"re:(\", which is not understood at its end");
  EXPECT_ERROR(bind_weights(*Sample({{"c", DType::kBF16, {2}}}), {{"c", {2}}}, {}, kFp8),
               "declares `quantization_config` (fp8), but no tensor of the checkpoint is stored so");
}

TEST(WeightFormats, BlocksOfAnySizeAreCutToTheMatrix) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  const std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  for (const auto& [rows, columns] :
       {std::pair{kHuge, std::int64_t{4}}, std::pair{std::int64_t{4}, kHuge}, std::pair{largest, largest},
        std::pair{std::int64_t{1} << 32, std::int64_t{1} << 32}}) {
    const Quantization blocks{.format = WeightFormat::kFP8, .block_rows = rows, .block_columns = columns};
    const Sample empty({{"w.weight", DType::kF8E4M3, {6, 8}}, {"w.weight_scale_inv", DType::kF32, {0, 0}}});
    EXPECT_FALSE(bind_weights(*empty, {{"w.weight", {6, 8}}}, {}, blocks).ok());
    const Shape grid{rows == 4 ? 2 : 1, columns == 4 ? 2 : 1};
    const Sample whole({{"w.weight", DType::kF8E4M3, {6, 8}}, {"w.weight_scale_inv", DType::kF32, grid}});
    const auto bound = bind_weights(*whole, {{"w.weight", {6, 8}}}, {}, blocks);
    ASSERT_TRUE(bound.ok()) << bound.error().message;
    EXPECT_GE(stored_bytes(bound->weights[0]), 6 * 8);
  }
}

}  // namespace
}  // namespace firstlight
