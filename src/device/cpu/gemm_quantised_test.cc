// The quantised products of gemm.h against their statement in scalar code.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "base/dtype.h"
#include "device/cpu/cpu_testing.h"
#include "device/cpu/gemm.h"
#include "device/cpu/quantise.h"

namespace firstlight {
namespace {

using testing::same;
using testing::tested_isas;

constexpr std::array kQuantised = {Packing::kInt8, Packing::kInt4, Packing::kMxfp4};

/// A weight row as integers and the scale of each 32 of them.
struct CodedRow {
  std::vector<int> codes;
  std::vector<float> scales;
};

CodedRow coded(const float* w, std::int64_t k, Packing packing) {
  std::vector<std::int8_t> codes(static_cast<std::size_t>(k));
  const auto groups = static_cast<std::size_t>((k + 31) / 32);
  CodedRow row;
  if (packing == Packing::kInt8) {
    row.scales.assign(1, quantise_int8(w, k, codes.data()));
  } else if (packing == Packing::kInt4) {
    std::vector<std::uint16_t> scales(groups);
    quantise_int4(w, k, codes.data(), scales.data());
    for (const std::uint16_t s : scales) row.scales.push_back(bf16_to_f32(s));
  } else {
    std::vector<std::uint8_t> scales(groups);
    quantise_mxfp4(w, k, codes.data(), scales.data());
    for (const std::uint8_t s : scales) row.scales.push_back(f8e8m0_to_f32(s) / 2);
  }
  for (const std::int8_t c : codes) {
    row.codes.push_back(packing == Packing::kMxfp4 ? static_cast<int>(2 * e2m1_value(c)) : c);
  }
  return row;
}

struct CodedX {
  std::vector<int> codes;
  std::vector<float> scales;  // of each group
};

/// A product of one of the kinds: the packing of the weights, and whether x has 16 bits.
struct Kind {
  Packing packing;
  bool wide;
};
constexpr std::array kKinds = {Kind{Packing::kInt8, false}, Kind{Packing::kInt8, true},
                               Kind{Packing::kInt4, false}, Kind{Packing::kMxfp4, false}};

/// Values of x that share a scale.
std::int64_t group_of(Packing packing) { return packing == Packing::kInt8 ? 256 : 32; }

CodedX coded_x(const float* x, std::int64_t k, Packing packing, bool wide) {
  CodedX row;
  const std::int64_t group = group_of(packing);
  for (std::int64_t from = 0; from < k; from += group) {
    const std::int64_t to = std::min(k, from + group);
    float most = 0;
    bool finite = true;
    for (std::int64_t i = from; i < to; ++i) {
      most = std::fmax(most, std::fabs(x[i]));
      finite = finite && std::isfinite(x[i]);
    }
    const bool nothing = most < 0x1p-100F;
    const float scale = nothing ? 0.0F : most / 127.0F * (wide ? 1.0F / 256 : 1.0F);
    row.scales.push_back(finite ? scale : std::numeric_limits<float>::quiet_NaN());
    for (std::int64_t i = from; i < to; ++i) {
      const float scaled = nothing || !finite ? 0.0F : x[i] * (127.0F / most);
      const float first = std::nearbyint(scaled);
      const float rest = std::nearbyint(std::clamp((scaled - first) * 256.0F, -127.0F, 127.0F));
      row.codes.push_back(static_cast<int>(wide ? first * 256.0F + rest : first));
    }
  }
  return row;
}

float expected(const CodedX& x, const CodedRow& w, Packing packing) {
  const auto k = static_cast<std::int64_t>(w.codes.size());
  const std::int64_t step = group_of(packing);
  float y = 0;
  for (std::int64_t from = 0; from < k; from += step) {
    int sum = 0;
    for (std::int64_t i = from; i < std::min(k, from + step); ++i) {
      sum += x.codes[static_cast<std::size_t>(i)] * w.codes[static_cast<std::size_t>(i)];
    }
    float scale = x.scales[static_cast<std::size_t>(from / group_of(packing))];
    if (packing != Packing::kInt8) scale *= w.scales[static_cast<std::size_t>(from / 32)];
    y = std::fmaf(static_cast<float>(sum), scale, y);
  }
  return packing == Packing::kInt8 ? y * w.scales[0] : y;
}

std::vector<float> normals(std::mt19937& random, std::int64_t n, float size) {
  std::normal_distribution<float> normal(0, size);
  std::vector<float> v(static_cast<std::size_t>(n));
  for (float& x : v) x = normal(random);
  return v;
}

PackedMatrix packed(const std::vector<float>& w, std::int64_t n, Packing packing) {
  const TensorView view{DType::kF32,
                        {n, static_cast<std::int64_t>(w.size()) / n},
                        reinterpret_cast<const std::uint8_t*>(w.data())};
  return std::move(*pack(view, packing));
}

std::vector<float> product(Isa isa, const std::vector<float>& x, std::int64_t first, std::int64_t m,
                           const PackedMatrix& w, bool wide) {
  const std::size_t bytes = (gemm_scratch_bytes(m, w.k()) + 63) / 64 * 64;
  const std::unique_ptr<void, void (*)(void*)> scratch(std::aligned_alloc(64, bytes), &std::free);
  std::memset(scratch.get(), 0xff, bytes);
  std::vector<float> y(static_cast<std::size_t>(m * w.n()));
  const GemmArgs args{.x = &x[static_cast<std::size_t>(first * w.k())],
                      .ldx = w.k(),
                      .m = m,
                      .w = &w,
                      .y = y.data(),
                      .ldy = w.n(),
                      .arithmetic = Arithmetic::kBF16,
                      .wide_x = wide,
                      .scratch = scratch.get()};
  prepare_x(kernels(isa), args, 0, gemm_tiles(m));
  gemm_panels(kernels(isa), args, 0, w.panels());
  return y;
}

void expect_stated(const std::vector<float>& x, const std::vector<float>& w, std::int64_t m, std::int64_t n) {
  const std::int64_t k = static_cast<std::int64_t>(w.size()) / n;
  for (const auto [packing, wide] : kKinds) {
    const PackedMatrix matrix = packed(w, n, packing);
    std::vector<CodedRow> rows;
    for (std::int64_t i = 0; i < n; ++i)
      rows.push_back(coded(&w[static_cast<std::size_t>(i * k)], k, packing));
    for (const Isa isa : tested_isas()) {
      const std::vector<float> y = product(isa, x, 0, m, matrix, wide);
      for (std::int64_t r = 0; r < m; ++r) {
        const CodedX codes = coded_x(&x[static_cast<std::size_t>(r * k)], k, packing, wide);
        for (std::int64_t i = 0; i < n; ++i) {
          const float want = expected(codes, rows[static_cast<std::size_t>(i)], packing);
          const float got = y[static_cast<std::size_t>(r * n + i)];
          ASSERT_TRUE(same(got, want) || (std::isnan(got) && std::isnan(want)))
              << isa_name(isa) << " " << packing_name(packing) << (wide ? " wide" : "") << " M " << m << " N "
              << n << " K " << k << " at " << r << ", " << i << ": " << got << " not " << want;
        }
      }
    }
  }
}

TEST(GemmQuantised, EveryOutputIsTheStatedSum) {
  std::mt19937 random(1);
  for (const std::int64_t m : {1, 2, 3, 4, 5, 7, 11, 12, 13, 25, 40}) {
    const auto n = static_cast<std::int64_t>(1 + random() % 150);
    const auto k = static_cast<std::int64_t>(1 + random() % 400);
    expect_stated(normals(random, m * k, 3), normals(random, n * k, 0.02F), m, n);
  }
  expect_stated(normals(random, 512 * 3, 1), normals(random, 512 * 64, 1), 3, 64);
}

TEST(GemmQuantised, ExtremeValues) {
  std::mt19937 random(2);
  constexpr std::int64_t kM = 9;
  constexpr std::int64_t kN = 5;
  constexpr std::int64_t kK = 300;
  for (const float size : {0.0F, 1e-40F, 1e-31F, 1e-18F, 1e15F}) {
    for (const float weight : {0.0F, 1e-35F, 1e-10F, 1e15F}) {
      expect_stated(normals(random, kM * kK, size), normals(random, kN * kK, weight), kM, kN);
    }
  }
  // All codes at their ends: the sums that would saturate 16 bits.
  for (const float sign : {1.0F, -1.0F}) {
    expect_stated(std::vector<float>(kM * kK, 2.0F), std::vector<float>(kN * kK, sign), kM, kN);
    expect_stated(std::vector<float>(kM * kK, -2.0F), std::vector<float>(kN * kK, sign), kM, kN);
  }
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> x = normals(random, kM * kK, 1);
    x[kK + 7] = bad;  // row 1 has no number, the others are as ever
    expect_stated(x, normals(random, kN * kK, 1), kM, kN);
  }
}

TEST(GemmQuantised, ARowIsTheSameInAnyCompany) {
  std::mt19937 random(3);
  constexpr std::int64_t kM = 450;
  constexpr std::int64_t kN = 70;
  constexpr std::int64_t kK = 200;
  const std::vector<float> x = normals(random, kM * kK, 1);
  for (const auto [packing, wide] : kKinds) {
    const PackedMatrix w = packed(normals(random, kN * kK, 1), kN, packing);
    for (const Isa isa : tested_isas()) {
      const std::vector<float> all = product(isa, x, 0, kM, w, wide);
      for (std::int64_t first = 0; first < kM; first += 37) {
        for (const std::int64_t m : {1, 2, 5, 12, 20}) {
          if (first + m > kM) continue;
          const std::vector<float> some = product(isa, x, first, m, w, wide);
          ASSERT_EQ(std::memcmp(some.data(), &all[static_cast<std::size_t>(first * kN)], some.size() * 4), 0);
        }
      }
    }
  }
}

/// Rows that were quantised once, each thread its share, are the rows that prepare_x quantises.
TEST(GemmQuantised, CodedRowsGiveTheSameProducts) {
  std::mt19937 random(5);
  constexpr std::int64_t kRows = 9;
  constexpr std::int64_t kN = 40;
  for (const std::int64_t k : {3, 128, 256, 600}) {
    const std::vector<float> x = normals(random, kRows * k, 1);
    const std::vector<std::int32_t> chosen = {8, 0, 3, 3, 7, 1};
    std::vector<float> gathered;
    for (const std::int32_t r : chosen)
      gathered.insert(gathered.end(), &x[static_cast<std::size_t>(r * k)],
                      &x[static_cast<std::size_t>((r + 1) * k - 1)] + 1);
    const auto m = static_cast<std::int64_t>(chosen.size());
    for (const Packing packing : kQuantised) {
      const PackedMatrix w = packed(normals(random, kN * k, 1), kN, packing);
      for (const Isa isa : tested_isas()) {
        std::vector<std::byte> coded(static_cast<std::size_t>(kRows * coded_row_bytes(k)), std::byte{0xff});
        code_rows(kernels(isa), packing, x.data(), k, 4, k, coded.data());
        code_rows(kernels(isa), packing, &x[static_cast<std::size_t>(4 * k)], k, kRows - 4, k,
                  coded.data() + 4 * coded_row_bytes(k));
        const std::size_t bytes = (gemm_scratch_bytes(m, k) + 63) / 64 * 64;
        const std::unique_ptr<void, void (*)(void*)> scratch(std::aligned_alloc(64, bytes), &std::free);
        std::vector<float> y(static_cast<std::size_t>(m * kN));
        const GemmArgs args{.coded_x = coded.data(),
                            .x_rows = chosen.data(),
                            .m = m,
                            .w = &w,
                            .y = y.data(),
                            .ldy = kN,
                            .arithmetic = Arithmetic::kBF16,
                            .scratch = scratch.get()};
        prepare_x(kernels(isa), args, 0, gemm_tiles(m));
        gemm_panels(kernels(isa), args, 0, w.panels());
        const std::vector<float> want = product(isa, gathered, 0, m, w, false);
        ASSERT_EQ(std::memcmp(y.data(), want.data(), want.size() * 4), 0)
            << isa_name(isa) << " " << packing_name(packing) << " K " << k;
      }
    }
  }
}

/// What the codes stand for is as near to the weights as the formats allow.
TEST(GemmQuantised, WeightsAreRoundedToTheNearestCode) {
  std::mt19937 random(4);
  constexpr std::int64_t kK = 77;
  const std::vector<float> w = normals(random, 40 * kK, 1);
  for (const Packing packing : kQuantised) {
    const PackedMatrix m = packed(w, 40, packing);
    for (std::int64_t n = 0; n < 40; ++n) {
      const CodedRow row = coded(&w[static_cast<std::size_t>(n * kK)], kK, packing);
      for (std::int64_t k = 0; k < kK; ++k) {
        const float scale = row.scales[packing == Packing::kInt8 ? 0 : static_cast<std::size_t>(k / 32)];
        const float value = w[static_cast<std::size_t>(n * kK + k)];
        ASSERT_EQ(m.at(n, k), static_cast<float>(row.codes[static_cast<std::size_t>(k)]) * scale);
        // Half a step, a whole one at the ends: 7.5 is cut to 7, and above 4 codes of E2M1 are 2 apart.
        const float step = packing == Packing::kMxfp4 ? 4 * scale : scale;
        const float end = packing == Packing::kInt8 ? 0.501F : packing == Packing::kInt4 ? 0.55F : 1.001F;
        ASSERT_LE(std::fabs(m.at(n, k) - value), end * step) << packing_name(packing);
      }
    }
  }
}

}  // namespace
}  // namespace firstlight
