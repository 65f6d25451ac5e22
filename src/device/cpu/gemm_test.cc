// The GEMM against its stated chain in scalar code, and the promise behind "one arithmetic": the bits of a
// row do not depend on what is computed beside it.
#include "device/cpu/gemm.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>

#include "device/cpu/cpu_testing.h"

namespace firstlight {
namespace {

using testing::any_finite;
using testing::bits_of;
using testing::float_of;
using testing::same;
using testing::tested_isas;

enum class Values { kOrdinary, kAllExponents, kNearTheSmallest, kHuge };

float value(std::mt19937& random, Values kind) {
  const float x = any_finite(random);
  const auto with_exponent = [&](std::uint32_t e) {
    return float_of((bits_of(x) & 0x807fffffU) | (e << 23));
  };
  switch (kind) {
    case Values::kOrdinary:
      return with_exponent(120U + static_cast<std::uint32_t>(random() % 9));
    case Values::kAllExponents:
      return x;
    case Values::kNearTheSmallest:
      return with_exponent(50U + static_cast<std::uint32_t>(random() % 30));
    case Values::kHuge:
      return with_exponent(180U + static_cast<std::uint32_t>(random() % 11));
  }
  return x;
}

float as_bf16(float x) { return bf16_to_f32(f32_to_bf16(x)); }

float denormal_as_zero(float x) { return std::fabs(x) < 0x1p-126F ? std::copysign(0.0F, x) : x; }

/// a * b + c as vdpbf16ps rounds it (gemm.h), written for reading.
float flushing_fma(float a, float b, float c) {
  const float r = std::fmaf(a, b, c);
  if (!(std::fabs(r) <= 0x1p-126F)) return r;
  const double exact = static_cast<double>(a) * static_cast<double>(b) + static_cast<double>(c);
  const bool tiny = std::fabs(exact) < 0x1p-126 * (1 - 0x1p-25);
  return tiny ? std::copysign(0.0F, exact == 0 ? r : static_cast<float>(exact)) : r;
}

struct Problem {
  std::int64_t m, n, k;
  std::vector<float> x, w;  // [m, k], [n, k]

  Problem(std::int64_t rows, std::int64_t outputs, std::int64_t depth, Values kind, std::mt19937& random)
      : m(rows), n(outputs), k(depth), x(size(rows)), w(size(outputs)) {
    for (float& v : x) v = value(random, kind);
    for (float& v : w) v = value(random, kind);
  }
  [[nodiscard]] std::size_t size(std::int64_t rows) const { return static_cast<std::size_t>(rows * k); }

  [[nodiscard]] float expected(Arithmetic arithmetic, Packing weights, std::int64_t row,
                               std::int64_t out) const {
    const float* a = &x[static_cast<std::size_t>(row * k)];
    const float* b = &w[static_cast<std::size_t>(out * k)];
    float y = 0;
    if (weights == Packing::kF32 || arithmetic == Arithmetic::kF32) {
      for (std::int64_t i = 0; i < k; ++i)
        y = std::fmaf(a[i], weights == Packing::kF32 ? b[i] : as_bf16(b[i]), y);
      return y;
    }
    for (std::int64_t i = 0; i < k; i += 2) {
      for (const std::int64_t j : {i + 1, i}) {
        const float xj = j < k ? denormal_as_zero(as_bf16(a[j])) : 0.0F;
        const float wj = j < k ? denormal_as_zero(as_bf16(b[j])) : 0.0F;
        y = flushing_fma(xj, wj, y);
      }
    }
    return y;
  }
};

TensorView view(const std::vector<float>& values, std::int64_t rows) {
  return {DType::kF32,
          {rows, static_cast<std::int64_t>(values.size()) / rows},
          reinterpret_cast<const std::uint8_t*>(values.data())};
}

PackedMatrix packed(const Problem& p, Packing target) { return std::move(*pack(view(p.w, p.n), target)); }

std::unique_ptr<void, void (*)(void*)> aligned_scratch(std::int64_t m, std::int64_t k) {
  const std::size_t bytes = (gemm_scratch_bytes(m, k) + 63) / 64 * 64;
  void* p = std::aligned_alloc(64, bytes);
  std::memset(p, 0xff, bytes);  // NaN wherever the kernel reads what was not prepared
  return {p, &std::free};
}

/// All of Y by one call, single-threaded, with a border that must stay untouched.
std::vector<float> product(Isa isa, const Problem& p, const PackedMatrix& w, Arithmetic arithmetic,
                           std::int64_t first_row, std::int64_t rows) {
  const auto scratch = aligned_scratch(rows, p.k);
  const std::int64_t ldy = w.n() + 3;
  std::vector<float> y(static_cast<std::size_t>(rows * ldy), 77.0F);
  const GemmArgs args{.x = &p.x[static_cast<std::size_t>(first_row * p.k)],
                      .ldx = p.k,
                      .m = rows,
                      .w = &w,
                      .y = y.data(),
                      .ldy = ldy,
                      .arithmetic = arithmetic,
                      .scratch = scratch.get()};
  prepare_x(kernels(isa), args, 0, gemm_tiles(rows));
  gemm_panels(kernels(isa), args, 0, w.panels());
  std::vector<float> inner;
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto row = y.begin() + r * ldy;
    inner.insert(inner.end(), row, row + w.n());
    for (std::int64_t i = w.n(); i < ldy; ++i) EXPECT_EQ(row[i], 77.0F) << "wrote beyond the columns";
  }
  return inner;
}

struct Mode {
  Arithmetic arithmetic;
  Packing weights;
};
constexpr std::array kModes = {Mode{Arithmetic::kF32, Packing::kF32}, Mode{Arithmetic::kF32, Packing::kBF16},
                               Mode{Arithmetic::kBF16, Packing::kBF16},
                               Mode{Arithmetic::kBF16, Packing::kF32}};

void expect_chains(const Problem& p, Values kind) {
  for (const Mode mode : kModes) {
    const PackedMatrix w = packed(p, mode.weights);
    for (const Isa isa : tested_isas()) {
      const std::vector<float> y = product(isa, p, w, mode.arithmetic, 0, p.m);
      for (std::int64_t r = 0; r < p.m; ++r) {
        for (std::int64_t n = 0; n < p.n; ++n) {
          const float want = p.expected(mode.arithmetic, mode.weights, r, n);
          const float got = y[static_cast<std::size_t>(r * p.n + n)];
          // -0 and +0 may differ where an odd K is padded: the sum of -0 and 0 is +0.
          ASSERT_TRUE(same(got, want) || (got == 0 && want == 0))
              << isa_name(isa) << " M " << p.m << " N " << p.n << " K " << p.k << " values "
              << static_cast<int>(kind) << " mode " << static_cast<int>(mode.arithmetic) << " weights "
              << packing_name(mode.weights) << " at " << r << ", " << n << ": " << got << " not " << want;
        }
      }
    }
  }
}

TEST(Gemm, EveryOutputIsTheStatedChain) {
  std::mt19937 random(1);
  for (const Values kind :
       {Values::kOrdinary, Values::kAllExponents, Values::kNearTheSmallest, Values::kHuge}) {
    for (const std::int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 25, 70}) {
      const auto n = static_cast<std::int64_t>(1 + random() % 130);
      const auto k = static_cast<std::int64_t>(1 + random() % 70);
      expect_chains({m, n, k, kind, random}, kind);
    }
    for (const std::int64_t k : {1, 2, 3, 15, 16, 17, 31, 32, 33, 64, 65}) {
      for (const std::int64_t n : {1, 15, 16, 17, 31, 32, 33, 130})
        expect_chains({3, n, k, kind, random}, kind);
    }
  }
}

TEST(Gemm, ARowHasTheSameBitsWhateverIsComputedBesideIt) {
  std::mt19937 random(2);
  for (const Values kind : {Values::kOrdinary, Values::kAllExponents}) {
    for (const std::int64_t k : {1, 2, 3, 37, 96}) {
      const auto n = static_cast<std::int64_t>(1 + random() % 130);
      const Problem p(70, n, k, kind, random);
      for (const Mode mode : kModes) {
        const PackedMatrix w = packed(p, mode.weights);
        std::vector<float> reference;
        for (const Isa isa : tested_isas()) {
          std::vector<float> alone;  // row by row
          for (std::int64_t r = 0; r < p.m; ++r) {
            const std::vector<float> y = product(isa, p, w, mode.arithmetic, r, 1);
            alone.insert(alone.end(), y.begin(), y.end());
          }
          if (reference.empty()) reference = alone;
          for (std::int64_t m = 1; m <= p.m; m += m < 26 ? 1 : 4) {
            const std::int64_t first =
                static_cast<std::int64_t>(random() % static_cast<unsigned>(p.m - m + 1));
            const std::vector<float> y = product(isa, p, w, mode.arithmetic, first, m);
            for (std::size_t i = 0; i < y.size(); ++i) {
              ASSERT_TRUE(same(y[i], alone[static_cast<std::size_t>(first * n) + i]))
                  << isa_name(isa) << " M " << m << " N " << n << " K " << k;
            }
          }
          for (std::size_t i = 0; i < alone.size(); ++i) {
            ASSERT_TRUE(same(alone[i], reference[i])) << isa_name(isa) << " differs from generic at " << i;
          }
        }
      }
    }
  }
}

TEST(Gemm, ThreadsChangeNothing) {
  std::mt19937 random(3);
  const Problem p(29, 117, 45, Values::kOrdinary, random);
  for (const Mode mode : kModes) {
    const PackedMatrix w = packed(p, mode.weights);
    for (const Isa isa : tested_isas()) {
      const std::vector<float> alone = product(isa, p, w, mode.arithmetic, 0, p.m);
      for (const int threads : {1, 2, 3, 7}) {
        ThreadPool pool(threads);
        const auto scratch = aligned_scratch(p.m, p.k);
        std::vector<float> y(alone.size());
        gemm(pool, kernels(isa),
             {.x = p.x.data(),
              .ldx = p.k,
              .m = p.m,
              .w = &w,
              .y = y.data(),
              .ldy = p.n,
              .arithmetic = mode.arithmetic,
              .scratch = scratch.get()});
        ASSERT_EQ(std::memcmp(y.data(), alone.data(), y.size() * sizeof(float)), 0) << threads << " threads";
      }
    }
  }
}

TEST(Gemm, RowsAreGatheredAndScattered) {
  std::mt19937 random(4);
  const Problem p(40, 50, 33, Values::kOrdinary, random);
  const PackedMatrix w = packed(p, Packing::kBF16);
  for (const Isa isa : tested_isas()) {
    const std::vector<float> all = product(isa, p, w, Arithmetic::kBF16, 0, p.m);
    std::vector<std::int32_t> from(17);
    std::vector<std::int32_t> to(17);
    std::vector<std::int32_t> places(30);
    std::iota(places.begin(), places.end(), 0);
    std::shuffle(places.begin(), places.end(), random);
    for (std::size_t i = 0; i < from.size(); ++i) {
      from[i] = static_cast<std::int32_t>(random() % 40);
      to[i] = places[i];
    }
    const auto scratch = aligned_scratch(17, p.k);
    std::vector<float> y(30 * 50, 77.0F);
    ThreadPool pool(1);
    gemm(pool, kernels(isa),
         {.x = p.x.data(),
          .ldx = p.k,
          .x_rows = from.data(),
          .m = 17,
          .w = &w,
          .y = y.data(),
          .ldy = 50,
          .y_rows = to.data(),
          .arithmetic = Arithmetic::kBF16,
          .scratch = scratch.get()});
    for (std::size_t i = 0; i < from.size(); ++i) {
      ASSERT_EQ(std::memcmp(&y[static_cast<std::size_t>(to[i]) * 50],
                            &all[static_cast<std::size_t>(from[i]) * 50], 50 * sizeof(float)),
                0);
    }
    for (std::size_t i = from.size(); i < 30; ++i)
      ASSERT_EQ(y[static_cast<std::size_t>(places[i]) * 50], 77.0F);
  }
}

TEST(Gemm, PartsPackedTogetherEqualPartsAlone) {
  std::mt19937 random(5);
  const std::int64_t k = 19;
  const Problem a(9, 37, k, Values::kOrdinary, random);
  Problem b(9, 5, k, Values::kOrdinary, random);
  b.x = a.x;
  const std::array views = {view(a.w, a.n), view(b.w, b.n)};
  const PackedMatrix both = std::move(*pack(views, Packing::kBF16));
  ASSERT_EQ(both.n(), 42);
  ASSERT_EQ(both.panels(), 3);
  for (const Isa isa : tested_isas()) {
    const std::vector<float> y = product(isa, a, both, Arithmetic::kBF16, 0, 9);
    const std::vector<float> ya = product(isa, a, packed(a, Packing::kBF16), Arithmetic::kBF16, 0, 9);
    const std::vector<float> yb = product(isa, b, packed(b, Packing::kBF16), Arithmetic::kBF16, 0, 9);
    for (std::size_t r = 0; r < 9; ++r) {
      EXPECT_EQ(std::memcmp(&y[r * 42], &ya[r * 37], 37 * sizeof(float)), 0);
      EXPECT_EQ(std::memcmp(&y[r * 42 + 37], &yb[r * 5], 5 * sizeof(float)), 0);
    }
    // The second part alone, into a matrix of its own columns.
    const auto scratch = aligned_scratch(9, k);
    std::vector<float> part(9 * 5);
    const GemmArgs args{.x = a.x.data(),
                        .ldx = k,
                        .m = 9,
                        .w = &both,
                        .y = part.data(),
                        .ldy = 5,
                        .first_column = both.parts()[1].columns.begin,
                        .arithmetic = Arithmetic::kBF16,
                        .scratch = scratch.get()};
    prepare_x(kernels(isa), args, 0, gemm_tiles(9));
    gemm_panels(kernels(isa), args, both.parts()[1].panels.begin, both.parts()[1].panels.end);
    EXPECT_EQ(std::memcmp(part.data(), yb.data(), part.size() * sizeof(float)), 0);
  }
}

TEST(Gemm, ManyRowsCrossTheBlockOfTiles) {
  std::mt19937 random(6);
  const Problem p(800, 40, 6, Values::kOrdinary, random);
  const PackedMatrix w = packed(p, Packing::kBF16);
  for (const Isa isa : tested_isas()) {
    const std::vector<float> y = product(isa, p, w, Arithmetic::kBF16, 0, p.m);
    for (std::int64_t r = 0; r < p.m; r += 7) {
      const std::vector<float> alone = product(isa, p, w, Arithmetic::kBF16, r, 1);
      ASSERT_EQ(
          std::memcmp(&y[static_cast<std::size_t>(r * p.n)], alone.data(), alone.size() * sizeof(float)), 0);
    }
  }
}

TEST(Gemm, TheAskedIsaRan) {
  std::mt19937 random(7);
  const Problem p(1, 1, 1, Values::kOrdinary, random);
  const PackedMatrix w = packed(p, Packing::kF32);
  const Result<Isa> chosen = choose_isa();
  ASSERT_TRUE(chosen.ok()) << chosen.error().message;
  std::array<std::uint64_t, kAllIsas.size()> before{};
  for (const Isa isa : available_isas()) before[static_cast<std::size_t>(isa)] = kernels(isa).gemm.calls();
  product(*chosen, p, w, Arithmetic::kF32, 0, 1);
  for (const Isa isa : available_isas()) {
    EXPECT_EQ(kernels(isa).gemm.calls() - before[static_cast<std::size_t>(isa)], isa == *chosen ? 1U : 0U);
  }
}

TEST(Gemm, ZeroRowsDoNothing) {
  std::mt19937 random(8);
  const Problem p(1, 4, 4, Values::kOrdinary, random);
  const PackedMatrix w = packed(p, Packing::kF32);
  ThreadPool pool(2);
  for (const Isa isa : tested_isas()) gemm(pool, kernels(isa), {.m = 0, .w = &w});
  EXPECT_EQ(gemm_scratch_bytes(0, 100), 0U);
}

}  // namespace
}  // namespace firstlight
