#include "checkpoint/weights.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "checkpoint/mxfp4.h"
#include "checkpoint/name_hint.h"
#include "checkpoint/stored_sample.h"

namespace firstlight {
namespace {

using testing::contains;
using testing::part_of;
using testing::request;
using testing::Sample;
using testing::Stored;

const Quantization kMxfp4 = {.format = WeightFormat::kMXFP4};

TEST(BindWeights, PlainWeights) {
  const Sample sample(
      {{"a", DType::kBF16, {2, 3}, {1, 2}}, {"b", DType::kF32, {1, 1, 4, 1}}, {"c", DType::kF16, {}}});
  const auto bound =
      bind_weights(*sample, {{"c", {}}, {"a", {2, 3}}, {"b", {4}, {{1, 1, 4, 1}}}, {"a", {2, 3}}});
  ASSERT_TRUE(bound.ok()) << bound.error().message;
  ASSERT_EQ(bound->weights.size(), 4U);
  EXPECT_EQ(bound->weights[1].name, "a");
  EXPECT_EQ(bound->weights[1].data.data[1], 2);
  EXPECT_EQ(bound->weights[2].data.shape, (Shape{4}));
  EXPECT_EQ(bound->weights[2].data.dtype, DType::kF32);
  EXPECT_TRUE(bound->notices.empty());
}

TEST(BindWeights, PaddedRows) {
  std::vector<std::uint8_t> data(16, 7);
  data.resize(32, 0);
  const Sample sample({{"a", DType::kF32, {8}, data}});
  const WeightRequest rows4{.name = "a", .shape = {4}, .padded_rows = 8};
  const auto bound = bind_weights(*sample, {rows4});
  ASSERT_TRUE(bound.ok()) << bound.error().message;
  EXPECT_EQ(bound->weights[0].data.shape, (Shape{4}));
  EXPECT_ERROR(bind_weights(*sample, {{"a", {4}}}), "\"a\" has [8], expected [4] in model.safetensors");
  EXPECT_ERROR(bind_weights(*sample, {{.name = "a", .shape = {9}, .padded_rows = 16}}),
               "has [8], expected [9] or 16 rows");
  EXPECT_ERROR(bind_weights(*sample, {{.name = "a", .shape = {3}, .padded_rows = 8}}),
               "tensors whose extra rows are not zero (1): \"a\" has [8], the model uses [3]");
  EXPECT_FALSE(bind_weights(*sample, {{.name = "a", .shape = {4}, .padded_rows = 16}}).ok());
  EXPECT_FALSE(bind_weights(*sample, {{.name = "a", .shape = {4, 1}, .padded_rows = 8}}).ok());
}

TEST(BindWeights, AllProblemsAreListedAtOnce) {
  const Sample sample({{"layers.1.norm.weight", DType::kBF16, {2}},
                       {"layers.1.q_proj.weight", DType::kI64, {2, 2}},
                       {"layers.1.k_proj.weight", DType::kBF16, {2, 3}},
                       {"layers.1.extra", DType::kU8, {5}},
                       {"vision_tower.a", DType::kF32, {2}},
                       {"vision_tower.b", DType::kF32, {1}}});
  const auto bound = bind_weights(*sample,
                                  {{"layers.1.norms.weight", {2}},
                                   {"layers.2.norm.weight", {2}},
                                   {"layers.1.q_proj.weight", {2, 2}},
                                   {"layers.1.k_proj.weight", {3, 2}}},
                                  {{"vision_tower.", "text only"}});
  ASSERT_FALSE(bound.ok());
  const std::string& message = bound.error().message;
  for (const char* part :
       {"missing tensors (2): \"layers.1.norms.weight\" (did you mean \"layers.1.norm.weight\"?); "
        "\"layers.2.norm.weight\"\n",
        "tensors that the model does not use (2): \"layers.1.extra\" in model.safetensors; "
        "\"layers.1.norm.weight\" in model.safetensors",
        "tensors of another shape (1): \"layers.1.k_proj.weight\" has [2, 3], expected [3, 2] in "
        "model.safetensors",
        "tensors of another type (1): \"layers.1.q_proj.weight\" is I64, expected BF16 or F16 or F32 in "
        "model.safetensors"}) {
    EXPECT_TRUE(contains(message, part)) << part << "\n" << message;
  }
  EXPECT_FALSE(contains(message, "vision_tower"));
}

TEST(BindWeights, IgnoredPrefixesAreCounted) {
  const Sample sample(
      {{"a", DType::kBF16, {2}}, {"vision_tower.a", DType::kF32, {2}}, {"vision_tower.b", DType::kF32, {1}}});
  const auto bound =
      bind_weights(*sample, {{"a", {2}}}, {{"vision_tower.", "text only"}, {"mm_projector.", "text only"}});
  ASSERT_TRUE(bound.ok()) << bound.error().message;
  EXPECT_EQ(bound->notices,
            std::vector<std::string>{"2 tensors (12 bytes) under \"vision_tower.\" are not used: text only"});
  // What is asked for is bound, ignored or not.
  EXPECT_TRUE(
      bind_weights(*sample, {{"a", {2}}, {"vision_tower.a", {2}}}, {{"vision_tower.", "text only"}}).ok());
}

TEST(BindWeights, ACopyMustBeOne) {
  const Stored table{"embed", DType::kBF16, {2}, {1, 2, 3, 4}};
  const auto bind = [&](Stored head) {
    const Sample sample({table, std::move(head)});
    auto bound = bind_weights(*sample, {{"embed", {2}}}, {{"lm_head.weight", "tied", "embed"}});
    return bound.ok() ? bound->notices.at(0) : bound.error().message;
  };
  EXPECT_EQ(bind({"lm_head.weight", DType::kBF16, {2}, {1, 2, 3, 4}}),
            "1 tensors (4 bytes) under \"lm_head.weight\" are not used: tied");
  for (const Stored& other : {Stored{"lm_head.weight", DType::kBF16, {2}, {1, 2, 3, 5}},
                              Stored{"lm_head.weight", DType::kF16, {2}, {1, 2, 3, 4}},
                              Stored{"lm_head.weight", DType::kBF16, {1}, {1, 2}}}) {
    EXPECT_TRUE(contains(bind(other), "\"lm_head.weight\" is not \"embed\", in model.safetensors"))
        << bind(other);
  }
}

TEST(BindWeights, LongListsAreCutButCounted) {
  std::vector<Stored> stored;
  std::vector<WeightRequest> requests;
  for (int i = 0; i < 1000; ++i) {
    stored.push_back({"model.layers." + std::to_string(i) + ".weight", DType::kBF16, {1}});
    requests.push_back({"language_model.model.layers." + std::to_string(i) + ".weight", {1}});
  }
  const Sample sample(std::move(stored));
  const auto bound = bind_weights(*sample, requests);
  EXPECT_ERROR(bound, "missing tensors (1000): ");
  EXPECT_ERROR(bound, "tensors that the model does not use (1000): ");
  EXPECT_ERROR(bound, "; and 980 more");
  EXPECT_ERROR(bound, "\"language_model.model.layers.7.weight\" (did you mean \"model.layers.7.weight\"?)");
  EXPECT_LT(bound.error().message.size(), 6000U);
}

TEST(BindWeights, Mxfp4) {
  const Stored packed{"x.weight_packed", DType::kU8, {3, 32}};
  const Stored scale{"x.weight_scale", DType::kU8, {3, 2}};
  const Sample good({packed, scale});
  const auto bound = bind_weights(*good, {{"x.weight", {3, 64}}}, {}, kMxfp4);
  ASSERT_TRUE(bound.ok()) << bound.error().message;
  EXPECT_EQ(bound->weights[0].format, WeightFormat::kMXFP4);
  EXPECT_EQ(bound->weights[0].shape, (Shape{3, 64}));
  EXPECT_ERROR(bind_weights(*good, {{"x.weight", {3, 96}}}, {}, kMxfp4),
               "\"x.weight_packed\" has [3, 32], expected [3, 48]");
  EXPECT_ERROR(bind_weights(*good, {{"x.weight", {3, 96}}}, {}, kMxfp4),
               "\"x.weight_scale\" has [3, 2], expected [3, 3]");
  EXPECT_ERROR(bind_weights(*good, {{"x.weight", {3, 65}}}, {}, kMxfp4), "columns a multiple of 32");
  EXPECT_ERROR(bind_weights(*good, {{"x.weight", {192}}}, {}, kMxfp4), "columns a multiple of 32");
  EXPECT_ERROR(bind_weights(*good, {{"model.x.weight", {3, 64}}}, {}, kMxfp4),
               "(did you mean \"x.weight_packed\"?)");
  EXPECT_ERROR(bind_weights(*Sample({packed}), {{"x.weight", {3, 64}}}, {}, kMxfp4),
               "missing tensors (1): \"x.weight_scale\"");
  EXPECT_ERROR(bind_weights(*Sample({scale}), {{"x.weight", {3, 64}}}, {}, kMxfp4),
               "missing tensors (1): \"x.weight_packed\"");
  EXPECT_ERROR(bind_weights(*Sample({{"x.weight_packed", DType::kF32, {3, 32}}, scale}),
                            {{"x.weight", {3, 64}}}, {}, kMxfp4),
               "\"x.weight_packed\" is F32, expected U8");
  EXPECT_ERROR(bind_weights(*Sample({packed, scale, {"x.weight", DType::kBF16, {3, 64}}}),
                            {{"x.weight", {3, 64}}}, {}, kMxfp4),
               "does not use (2): \"x.weight_packed\"");
}

TEST(Parts, EveryRowOfATensorMustBelongToOne) {
  const Sample sample({{"x", DType::kF32, {2, 4, 3}}, {"y", DType::kBF16, {6}}});
  const auto x = [](std::int64_t expert, std::optional<RowChoice> rows = std::nullopt) {
    return request("x", part_of({2, 4, 3}, {expert}, rows));
  };
  const WeightRequest y{"y", {6}};
  EXPECT_TRUE(bind_weights(*sample, {y, x(0), x(1)}).ok());
  EXPECT_TRUE(bind_weights(*sample, {y, x(0), x(1, {{0, 1, 2}}), x(1, {{1, 1, 2}})}).ok());
  EXPECT_TRUE(bind_weights(*sample, {y, x(0), {"x", {2, 4, 3}}}).ok());
  EXPECT_ERROR(
      bind_weights(*sample, {y, x(0)}),
      "tensors of which the model does not use all rows (1): \"x\": 4 of 8 rows, the first is row 0 of "
      "slice 1");
  EXPECT_ERROR(bind_weights(*sample, {y, x(0), x(1, {{0, 1, 2}})}),
               "2 of 8 rows, the first is row 1 of slice 1");
  EXPECT_ERROR(bind_weights(*sample, {x(0), x(1), request("y", part_of({6}, {}, {{0, 5}}))}),
               "\"y\": 1 of 6 rows, the first is row 5");
  // A tensor of another shape, or none, is one problem however many parts are asked for.
  std::vector<WeightRequest> many;
  for (int e = 0; e < 30; ++e) many.push_back(request("x", part_of({30, 4, 3}, {e})));
  for (int e = 0; e < 30; ++e) many.push_back(request("z", part_of({30, 4, 3}, {e})));
  EXPECT_ERROR(bind_weights(*sample, many),
               "tensors of another shape (1): \"x\" has [2, 4, 3], expected [30, 4, 3] in model.safetensors");
  EXPECT_ERROR(bind_weights(*sample, many), "missing tensors (1): \"z\"");
}

TEST(Parts, RandomPartsReadTheRowsThatTheirTextNames) {
  std::mt19937 random(5);
  const auto below = [&random](std::int64_t n) { return static_cast<std::int64_t>(random()) % n; };
  for (int round = 0; round < 60; ++round) {
    Shape full;
    for (std::int64_t d = 1 + below(4); d > 0; --d) full.push_back(1 + below(6));
    const std::int64_t fixed = below(static_cast<std::int64_t>(full.size()));
    std::vector<std::int64_t> at;
    for (std::int64_t i = 0; i < fixed; ++i) at.push_back(below(full[static_cast<std::size_t>(i)]));
    const bool transposed = full.size() - at.size() == 2 && below(2) == 0;
    const std::int64_t rows = transposed ? full.back() : full[at.size()];
    RowChoice choice{.first = 0, .count = 0, .every = 1 + below(rows)};
    while (rows % choice.every != 0) ++choice.every;
    choice.first = below(choice.every);
    choice.count = 1 + below(choice.every - choice.first);
    const TensorPart part = part_of(full, at, choice, transposed);

    std::vector<std::uint8_t> data(static_cast<std::size_t>(element_count(full)) * 2);
    for (auto& b : data) b = static_cast<std::uint8_t>(random());
    const Sample sample({{"x", DType::kBF16, full, data}});
    const auto bound = bind_weights(*sample, {{"x", full}, request("x", part)});
    ASSERT_TRUE(bound.ok()) << bound.error().message;
    const WeightData& weight = bound->weights[1];
    EXPECT_EQ(weight.name, "x" + part_text(part));
    const std::int64_t taken = weight_rows(weight);
    const std::int64_t width = weight_row_elements(weight);
    const std::int64_t begin = below(taken);
    std::vector<std::uint16_t> out(static_cast<std::size_t>((taken - begin) * width));
    ASSERT_TRUE(read_rows_bf16(weight, begin, taken - begin, out.data()).ok());

    std::vector<std::int64_t> expected_rows;
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t in_group = r % choice.every;
      if (in_group >= choice.first && in_group < choice.first + choice.count) expected_rows.push_back(r);
    }
    ASSERT_EQ(static_cast<std::int64_t>(expected_rows.size()), taken);
    std::int64_t slice = 0;
    for (std::size_t i = 0; i < at.size(); ++i) slice = slice * full[i] + at[i];
    for (std::int64_t r = begin; r < taken; ++r) {
      for (std::int64_t k = 0; k < width; ++k) {
        const std::int64_t row = expected_rows[static_cast<std::size_t>(r)];
        const std::int64_t in_slice = transposed ? k * rows + row : row * width + k;
        std::uint16_t want = 0;
        std::memcpy(&want, &data[static_cast<std::size_t>(slice * rows * width + in_slice) * 2], 2);
        ASSERT_EQ(out[static_cast<std::size_t>((r - begin) * width + k)], want) << part_text(part);
      }
    }
  }
}

TEST(Parts, ATensorOrAPartOfAnother) {
  std::vector<WeightRequest> either;
  for (const std::int64_t e : {0, 1}) {
    either.push_back({.name = "x." + std::to_string(e) + ".weight", .shape = {4, 32}});
    either.back().or_part = NamedPart{"stack", part_of({2, 4, 32}, {e})};
  }
  const Stored x0{"x.0.weight", DType::kF32, {4, 32}};
  const Stored x1{"x.1.weight", DType::kF32, {4, 32}};
  const Stored stack{"stack", DType::kBF16, {2, 4, 32}};
  const auto names = [](const Result<BoundWeights>& bound) {
    EXPECT_TRUE(bound.ok()) << bound.error().message;
    return bound.ok() ? bound->weights[0].name + " " + bound->weights[1].name : "";
  };
  EXPECT_EQ(names(bind_weights(*Sample({x0, x1}), either)), "x.0.weight x.1.weight");
  EXPECT_EQ(names(bind_weights(*Sample({stack}), either)), "stack[0] stack[1]");
  const Stored packed{"x.0.weight_packed", DType::kU8, {4, 16}};
  const Stored scale{"x.0.weight_scale", DType::kU8, {4, 1}};
  EXPECT_EQ(names(bind_weights(*Sample({packed, scale, x1}), either, {}, {.format = WeightFormat::kMXFP4})),
            "x.0.weight x.1.weight");

  EXPECT_ERROR(bind_weights(*Sample({x0}), either),
               "missing tensors (1): \"x.1.weight\", or \"stack\" with it");
  EXPECT_ERROR(bind_weights(*Sample({x0, x1, stack}), either), "does not use (1): \"stack\"");
  EXPECT_ERROR(bind_weights(*Sample({x0, stack}), either),
               "\"stack\": 4 of 8 rows, the first is row 0 of slice 0");
  EXPECT_ERROR(bind_weights(*Sample({{"stack", DType::kBF16, {3, 4, 32}}}), either), "expected [2, 4, 32]");
}

TEST(Parts, WhatIsNoPartOfATensor) {
  EXPECT_ERROR(make_part({4, 2}, {0, 1}, std::nullopt, false), "leaves no rows");
  EXPECT_ERROR(make_part({4, 2}, {4}, std::nullopt, false), "lies outside");
  EXPECT_ERROR(make_part({4, 2}, {-1}, std::nullopt, false), "lies outside");
  EXPECT_ERROR(make_part({4, 2}, {1}, std::nullopt, true), "no matrix to transpose");
  for (const RowChoice rows : {RowChoice{0, 0, 2},
                               {0, 3, 2},
                               {1, 2, 2},
                               {-1, 1, 2},
                               {0, 1, 3},
                               {0, 5, 0},
                               {0, 1, -2},
                               {2, 3, 0},
                               {1, std::numeric_limits<std::int64_t>::max(), 2}}) {
    EXPECT_ERROR(make_part({4, 2}, {}, rows, false), "do not fit its 4 rows");
  }
  EXPECT_EQ(part_text(part_of({4, 2}, {1})), "[1]");
  EXPECT_EQ(part_text(part_of({5, 4, 2}, {3}, {{1, 1, 2}})), "[3].rows(1, 1, 2)");
  EXPECT_EQ(part_text(part_of({4, 2}, {}, {{1, 3}}, false)), ".rows(1, 3)");
  EXPECT_EQ(part_text(part_of({4, 2}, {}, {{0, 1}}, true)), ".T.rows(0, 1)");
}

TEST(Mxfp4, TableAgreesWithTheFormula) {
  const double magnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (int scale = 0; scale < 255; ++scale) {
    for (int code = 0; code < 16; ++code) {
      const double exact = (code < 8 ? 1 : -1) * std::ldexp(magnitudes[code & 7], scale - 127);
      const float value =
          bf16_to_f32(kMXFP4Values[static_cast<std::size_t>(scale)][static_cast<std::size_t>(code)]);
      EXPECT_EQ(std::signbit(value), code >= 8);
      if (std::abs(exact) < 0x1p128) {
        EXPECT_EQ(static_cast<double>(value), exact) << scale << " " << code;
      } else {
        EXPECT_TRUE(std::isinf(value)) << scale << " " << code;
        EXPECT_GE(scale, kMXFP4FirstOverflowingScale);
      }
    }
  }
  EXPECT_TRUE(std::isnan(bf16_to_f32(kMXFP4Values[255][3])));
}

TEST(Mxfp4, GoldenOfAllCodesAndScales) {
  const std::string folder = std::string(FL_REPO_ROOT) + "/tests/data/checkpoints/kimi_k3_mxfp4_codes";
  const auto checkpoint = Checkpoint::open(folder);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const auto expect = open_safetensors(folder + "/expect.safetensors");
  ASSERT_TRUE(expect.ok()) << expect.error().message;
  const NamedTensor& want = expect->content.tensors.at(0);
  const auto bound = bind_weights(*checkpoint, {{want.name, want.view.shape}}, {}, kMxfp4);
  ASSERT_TRUE(bound.ok()) << bound.error().message;
  const WeightData& weight = bound->weights[0];
  ASSERT_EQ(weight.format, WeightFormat::kMXFP4);
  const std::int64_t rows = weight_rows(weight);
  const std::int64_t width = weight_row_elements(weight);
  // The floating-point mode of the thread must not matter.
  for (const unsigned mode : {0x1f80U, 0x9fc0U}) {
    const unsigned saved = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(mode);
    for (std::int64_t begin = 0; begin < rows; begin += 3) {
      const std::int64_t count = std::min<std::int64_t>(3, rows - begin);
      const auto n = static_cast<std::size_t>(count * width);
      std::vector<std::uint16_t> bf16(n);
      std::vector<float> f32(n);
      ASSERT_TRUE(read_rows_bf16(weight, begin, count, bf16.data()).ok());
      ASSERT_TRUE(read_rows_f32(weight, begin, count, f32.data()).ok());
      EXPECT_EQ(std::memcmp(bf16.data(), want.view.data + begin * width * 2, n * 2), 0);
      for (std::size_t i = 0; i < n; ++i) {
        EXPECT_EQ(std::bit_cast<std::uint32_t>(f32[i]), std::uint32_t{bf16[i]} << 16);
      }
    }
    __builtin_ia32_ldmxcsr(saved);
  }
}

TEST(Mxfp4, PartsOfAStack) {
  const Shape full = {3, 6, 64};
  std::mt19937 random(7);
  std::vector<std::uint8_t> codes(3 * 6 * 32);
  std::vector<std::uint8_t> scales(3 * 6 * 2);
  for (auto& b : codes) b = static_cast<std::uint8_t>(random());
  for (auto& b : scales) b = static_cast<std::uint8_t>(random() % 250);
  const Sample sample({{"x.weight_packed", DType::kU8, {3, 6, 32}, codes},
                       {"x.weight_scale", DType::kU8, {3, 6, 2}, scales}});
  std::vector<WeightRequest> requests;
  for (std::int64_t e = 0; e < 3; ++e) {
    requests.push_back(request("x.weight", part_of(full, {e}, {{0, 1, 2}})));
    requests.push_back(request("x.weight", part_of(full, {e}, {{1, 1, 2}})));
  }
  const auto bound = bind_weights(*sample, requests, {}, kMxfp4);
  ASSERT_TRUE(bound.ok()) << bound.error().message;
  for (std::size_t w = 0; w < 6; ++w) {
    std::vector<float> out(3 * 64);
    ASSERT_EQ(bound->weights[w].shape, (Shape{3, 64}));
    ASSERT_TRUE(read_rows_f32(bound->weights[w], 0, 3, out.data()).ok());
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t row = w / 2 * 6 + i / 64 * 2 + w % 2;
      const std::size_t k = i % 64;
      const int code = (codes[row * 32 + k / 2] >> (k % 2 * 4)) & 15;
      EXPECT_EQ(out[i], bf16_to_f32(mxfp4_value(code, scales[row * 2 + k / 32])));
    }
  }
  requests.pop_back();
  EXPECT_ERROR(bind_weights(*sample, requests, {}, kMxfp4),
               "\"x.weight\": 3 of 18 rows, the first is row 1 of slice 2");
  EXPECT_ERROR(bind_weights(*sample, {request("x.weight", part_of(full, {0, 1}))}, {}, kMxfp4),
               "columns a multiple of 32");
}

TEST(Mxfp4, NanScaleAndOverflowNameTheTensor) {
  std::vector<std::uint8_t> codes(2 * 32, 0x11);
  codes[32 + 16] = 0x61;  // row 1, second group, column 1: code 6 = 4.0
  for (const auto& [byte, error] : std::vector<std::pair<std::uint8_t, const char*>>{
           {255, "tensor \"x.weight\", row 1: an MXFP4 scale is NaN (byte 255)"},
           {253, "tensor \"x.weight\", row 1: an MXFP4 value exceeds the range of float (scale byte 253)"},
           {252, nullptr}}) {
    const Sample sample({{"x.weight_packed", DType::kU8, {2, 32}, codes},
                         {"x.weight_scale", DType::kU8, {2, 2}, {127, 254, 0, byte}}});
    const auto bound = bind_weights(*sample, {{"x.weight", {2, 64}}}, {}, kMxfp4);
    ASSERT_TRUE(bound.ok());
    std::vector<float> out(128);
    EXPECT_TRUE(read_rows_f32(bound->weights[0], 0, 1, out.data()).ok());
    const Status status = read_rows_f32(bound->weights[0], 0, 2, out.data());
    if (error == nullptr) {
      EXPECT_TRUE(status.ok());
    } else {
      EXPECT_ERROR(status, error);
    }
  }
}

TEST(ReadRows, RandomShapesAgreeWithElementwiseConversion) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    const DType dtype = std::array{DType::kBF16, DType::kF16, DType::kF32}[random() % 3];
    Shape shape;
    for (std::size_t d = random() % 4; d > 0; --d) shape.push_back(static_cast<std::int64_t>(random() % 7));
    // A byte in front makes the data unaligned, which files may do.
    std::vector<std::uint8_t> data(1 + static_cast<std::size_t>(element_count(shape)) * dtype_size(dtype));
    for (auto& b : data) b = static_cast<std::uint8_t>(random());
    WeightData weight;
    weight.shape = shape;
    weight.data = {dtype, shape, data.data() + 1};
    const std::int64_t rows = weight_rows(weight);
    const std::int64_t width = weight_row_elements(weight);
    ASSERT_EQ(rows * width, element_count(shape));
    const std::int64_t begin = rows == 0 ? 0 : static_cast<std::int64_t>(random()) % (rows + 1);
    const std::int64_t count = rows - begin;
    std::vector<float> f32(static_cast<std::size_t>(count * width) + 1, -77);
    std::vector<std::uint16_t> bf16(f32.size(), 77);
    ASSERT_TRUE(read_rows_f32(weight, begin, count, f32.data()).ok());
    ASSERT_TRUE(read_rows_bf16(weight, begin, count, bf16.data()).ok());
    for (std::size_t i = 0; i + 1 < f32.size(); ++i) {
      const std::size_t at = 1 + (static_cast<std::size_t>(begin * width) + i) * dtype_size(dtype);
      std::uint32_t bits = 0;
      std::memcpy(&bits, data.data() + at, dtype_size(dtype));
      const auto half = static_cast<std::uint16_t>(bits);
      const float want = dtype == DType::kF32    ? std::bit_cast<float>(bits)
                         : dtype == DType::kBF16 ? bf16_to_f32(half)
                                                 : f16_to_f32(half);
      EXPECT_EQ(std::bit_cast<std::uint32_t>(f32[i]), std::bit_cast<std::uint32_t>(want));
      EXPECT_EQ(bf16[i], dtype == DType::kBF16 ? half : f32_to_bf16(want));
    }
    EXPECT_EQ(f32.back(), -77);
    EXPECT_EQ(bf16.back(), 77);
  }
}

TEST(NameHint, EditDistance) {
  EXPECT_EQ(edit_distance("kitten", "sitting", 9), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting", 2), 3U);
  EXPECT_EQ(edit_distance("", "abc", 9), 3U);
  EXPECT_EQ(edit_distance("abc", "abc", 0), 0U);
  EXPECT_EQ(edit_distance("abc", "abcdefgh", 4), 5U);
}

TEST(NameHint, NearestName) {
  const std::vector<std::string_view> names = {"layers.1.mlp.up.weight", "layers.11.mlp.up.weight",
                                               "norm.weight", "layers.2.mlp.upp.weight",
                                               "layers.2.mlp.down.weight"};
  EXPECT_EQ(nearest_name("layers.2.mlp.up.weight", names), "layers.2.mlp.upp.weight");
  EXPECT_EQ(nearest_name("layers.12.mlp.up.weight", names), "");
  EXPECT_EQ(nearest_name("model.norm.weight", names), "norm.weight");
  EXPECT_EQ(nearest_name("up.weight", names), "");
  EXPECT_EQ(nearest_name("completely.different", names), "");
}

}  // namespace
}  // namespace firstlight
