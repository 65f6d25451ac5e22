#include "device/cpu/packed_matrix.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>

#include "device/cpu/cpu_testing.h"

namespace firstlight {
namespace {

TensorView view_of(DType dtype, Shape shape, const void* data) {
  return {dtype, std::move(shape), static_cast<const std::uint8_t*>(data)};
}

TEST(PackedMatrix, HoldsEveryValueAndPadsWithZeros) {
  std::mt19937 random(1);
  for (const std::int64_t n : {1, 31, 32, 33, 70}) {
    for (const std::int64_t k : {1, 2, 3, 16, 17, 33}) {
      std::vector<float> w(static_cast<std::size_t>(n * k));
      for (float& v : w) v = testing::any_finite(random);
      for (const Packing target : {Packing::kF32, Packing::kBF16}) {
        for (const int threads : {1, 3}) {
          ThreadPool pool(threads);
          const std::int64_t size = target == Packing::kF32 ? 4 : 2;
          const Result<PackedMatrix> m = pack(view_of(DType::kF32, {n, k}, w.data()), target, &pool);
          ASSERT_TRUE(m.ok()) << m.error().message;
          EXPECT_EQ(m->n(), n);
          EXPECT_EQ(m->k(), k);
          EXPECT_EQ(m->panels(), (n + 31) / 32);
          EXPECT_EQ(m->bytes(), packed_bytes(std::array{n}, k, target));
          EXPECT_EQ(reinterpret_cast<std::uintptr_t>(m->panel(0)) % 64, 0U);
          EXPECT_EQ(m->panel_bytes() % 64, 0);
          double sum = 0;  // of magnitudes, over all packed bytes: padding adds nothing
          for (std::int64_t i = 0; i < n; ++i) {
            for (std::int64_t j = 0; j < k; ++j) {
              const float v = w[static_cast<std::size_t>(i * k + j)];
              const float want = target == Packing::kF32 ? v : bf16_to_f32(f32_to_bf16(v));
              ASSERT_TRUE(testing::same(m->at(i, j), want));
              sum += want != 0 ? 1 : 0;
            }
          }
          double packed = 0;
          for (std::int64_t b = 0; b < m->bytes(); b += size) {
            std::uint64_t u = 0;
            std::memcpy(&u, m->panel(0) + b, static_cast<std::size_t>(size));
            packed += (u & (target == Packing::kF32 ? 0x7fffffffU : 0x7fffU)) != 0 ? 1 : 0;
          }
          ASSERT_EQ(packed, sum);
        }
      }
    }
  }
}

TEST(PackedMatrix, ReadsEverySourceTypeAtAnyAlignment) {
  std::mt19937 random(2);
  const std::int64_t n = 35;
  const std::int64_t k = 7;
  for (const DType source : {DType::kBF16, DType::kF16, DType::kF32}) {
    const std::size_t size = dtype_size(source);
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(n * k) * size + 1);
    std::vector<float> values;
    for (std::int64_t i = 0; i < n * k; ++i) {
      std::uint32_t u = testing::bits_of(testing::any_finite(random)) >> (size == 2 ? 16 : 0);
      if (source == DType::kF16) u &= 0xbbffU;  // finite
      std::memcpy(&bytes[1 + static_cast<std::size_t>(i) * size], &u, size);
      const auto h = static_cast<std::uint16_t>(u);
      values.push_back(source == DType::kF32   ? testing::float_of(u)
                       : source == DType::kF16 ? f16_to_f32(h)
                                               : bf16_to_f32(h));
    }
    for (const Packing target : {Packing::kF32, Packing::kBF16}) {
      const Result<PackedMatrix> m = pack(view_of(source, {n, k}, &bytes[1]), target);
      ASSERT_TRUE(m.ok()) << m.error().message;
      for (std::int64_t i = 0; i < n * k; ++i) {
        const float v = values[static_cast<std::size_t>(i)];
        ASSERT_EQ(m->at(i / k, i % k), target == Packing::kF32 ? v : bf16_to_f32(f32_to_bf16(v)));
      }
    }
  }
}

TEST(PackedMatrix, PartsStartAtPanelsAndColumnsHaveNoGaps) {
  const auto source = [](std::int64_t rows, float offset) {
    return RowSource{rows, [offset](std::int64_t row, float* out) {
                       for (int k = 0; k < 3; ++k) out[k] = offset + static_cast<float>(row * 4 + k);
                     }};
  };
  const std::array parts = {source(33, 0), source(1, 256), source(32, 512)};
  const Result<PackedMatrix> m = pack(parts, 3, Packing::kF32);
  ASSERT_TRUE(m.ok()) << m.error().message;
  EXPECT_EQ(m->n(), 66);
  EXPECT_EQ(m->panels(), 4);
  EXPECT_EQ(m->parts()[1].panels.begin, 2);
  EXPECT_EQ(m->parts()[1].columns.begin, 33);
  EXPECT_EQ(m->parts()[2].columns.end, 66);
  EXPECT_EQ(m->spans()[1].column, 32);
  EXPECT_EQ(m->spans()[1].count, 1);
  EXPECT_EQ(m->at(33, 2), 258.0F);
  EXPECT_EQ(m->at(65, 1), 512.0F + 31 * 4 + 1);
  EXPECT_EQ(m->bytes(), packed_bytes(std::array<std::int64_t, 3>{33, 1, 32}, 3, Packing::kF32));
}

TEST(PackedMatrix, TheTypeFollowsTheSourceAndTheArithmetic) {
  EXPECT_EQ(packed_as(DType::kBF16, Arithmetic::kF32), Packing::kBF16);
  EXPECT_EQ(packed_as(DType::kBF16, Arithmetic::kBF16), Packing::kBF16);
  EXPECT_EQ(packed_as(DType::kF32, Arithmetic::kF32), Packing::kF32);
  EXPECT_EQ(packed_as(DType::kF16, Arithmetic::kBF16), Packing::kBF16);
  EXPECT_EQ(packed_as(DType::kF32, Arithmetic::kBF16, true), Packing::kF32);
}

TEST(PackedMatrix, RefusesWhatItCannotPack) {
  const std::array<float, 4> w{};
  EXPECT_FALSE(pack(view_of(DType::kI32, {2, 2}, w.data()), Packing::kF32).ok());
  EXPECT_FALSE(pack(view_of(DType::kF32, {4}, w.data()), Packing::kF32).ok());
  EXPECT_FALSE(pack(view_of(DType::kF32, {0, 4}, w.data()), Packing::kF32).ok());
  EXPECT_FALSE(pack(std::span<const TensorView>{}, Packing::kF32).ok());
  const std::array mixed = {view_of(DType::kF32, {2, 2}, w.data()), view_of(DType::kF32, {4, 1}, w.data())};
  const Result<PackedMatrix> refused = pack(mixed, Packing::kF32);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("same K"), std::string::npos);
}

}  // namespace
}  // namespace firstlight
