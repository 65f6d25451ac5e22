// The vector vocabulary: every instruction set against plain C++ and against each other.
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <limits>

#include "base/dtype.h"
#include "device/cpu/cpu_testing.h"

namespace firstlight {
namespace {

using testing::any_finite;
using testing::bits_of;
using testing::float_of;
using testing::probe;
using testing::same;
using testing::tested_isas;

constexpr int kLanes = 16;
using Lanes = std::array<float, kLanes>;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Lanes random_lanes(std::mt19937& random, bool specials) {
  constexpr std::array kSpecial = {
      0.0F,      -0.0F, kInf,   -kInf,   kNan,    1.0F,     -1.0F,           0x1p-126F,
      0x1p-149F, 88.7F, -87.3F, -104.5F, 0x1p31F, -0x1p31F, 0x1.fffffep127F, 0.5F};
  Lanes lanes;
  for (float& x : lanes) {
    const auto roll = random() % 8;
    x = any_finite(random);
    if (roll < 4)
      x = float_of((bits_of(x) & 0x807fffffU) | ((118U + static_cast<unsigned>(random() % 18)) << 23));
    if (roll == 7 && specials) x = kSpecial[random() % kSpecial.size()];
  }
  return lanes;
}

/// What the exact operations are, in scalar C++.
float expected(VecOp op, const Lanes& av, const Lanes& bv, const Lanes& cv, std::size_t i) {
  const float a = av[i];
  const float b = bv[i];
  const float c = cv[i];
  switch (op) {
    case VecOp::kAdd:
      return a + b;
    case VecOp::kSub:
      return a - b;
    case VecOp::kMul:
      return a * b;
    case VecOp::kDiv:
      return a / b;
    case VecOp::kFma:
      return std::fmaf(a, b, c);
    case VecOp::kSqrt:
      return std::sqrt(a);
    case VecOp::kMax:
      return a > b ? a : b;
    case VecOp::kMin:
      return a < b ? a : b;
    case VecOp::kNegate:
      return -a;
    case VecOp::kAbs:
      return std::fabs(a);
    case VecOp::kCopysign:
      return std::copysign(a, b);
    case VecOp::kRoundToBf16:
      return bf16_to_f32(f32_to_bf16(a));
    case VecOp::kSelectLess:
      return a < b ? b : c;
    case VecOp::kSelectLessEqual:
      return a <= b ? b : c;
    case VecOp::kSelectEqual:
      return a == b || (std::isnan(a) && std::isnan(b)) ? b : c;
    case VecOp::kRoundToInt:
      return a >= -0x1p31F && a < 0x1p31F ? static_cast<float>(std::nearbyint(static_cast<double>(a))) + 0.0F
                                          : -0x1p31F;
    case VecOp::kRoundEven:
      return std::nearbyint(a);
    case VecOp::kShift: {
      const std::uint32_t u = bits_of(a);
      const auto arithmetic = static_cast<std::uint32_t>(static_cast<std::int32_t>(u) >> 3);
      return float_of(arithmetic + ((u >> 5) ^ (u << 7)) - ((bits_of(b) & bits_of(c)) | 1U));
    }
    case VecOp::kSwapNeighbours:
      return av[i ^ 1U];
    case VecOp::kLookup:
      return bv[bits_of(a) & 15U];
    default:
      return kNan;
  }
}

TEST(Simd, ProbesAreWhatTheySay) {
  for (const Isa isa : tested_isas()) EXPECT_EQ(probe(isa).compiled_as(), isa_name(isa));
}

TEST(Simd, OperationsEqualScalarArithmeticOnEveryIsa) {
  std::mt19937 random(1);
  for (int round = 0; round < 1000; ++round) {
    const Lanes a = random_lanes(random, true);
    const Lanes b = random_lanes(random, true);
    Lanes c = random_lanes(random, true);
    if (round % 4 == 0) {
      for (std::size_t i = 0; i < kLanes; ++i) c[i] = -a[i] * b[i];  // cancellation: fma must round once
    }
    for (int op = 0; op <= static_cast<int>(VecOp::kLookup); ++op) {
      for (const Isa isa : tested_isas()) {
        Lanes out;
        probe(isa).apply(static_cast<VecOp>(op), a.data(), b.data(), c.data(), out.data(), kLanes);
        for (std::size_t i = 0; i < kLanes; ++i) {
          const float want = expected(static_cast<VecOp>(op), a, b, c, i);
          ASSERT_TRUE(same(out[i], want)) << isa_name(isa) << " op " << op << " of " << a[i] << ", " << b[i]
                                          << ", " << c[i] << ": " << out[i] << ", expected " << want;
        }
      }
    }
  }
}

TEST(Simd, EveryIsaAndEveryLaneHasTheSameBits) {
  std::mt19937 random(2);
  for (int round = 0; round < 1000; ++round) {
    Lanes a = random_lanes(random, true);
    if (round % 2 == 0) a.fill(a[0]);
    for (int op = static_cast<int>(VecOp::kExp); op < kVecOps; ++op) {
      Lanes base;
      probe(Isa::kGeneric).apply(static_cast<VecOp>(op), a.data(), a.data(), a.data(), base.data(), kLanes);
      if (round % 2 == 0) {
        for (const float x : base) ASSERT_TRUE(same(x, base[0])) << "op " << op << " of " << a[0];
      }
      for (const Isa isa : tested_isas()) {
        Lanes out;
        probe(isa).apply(static_cast<VecOp>(op), a.data(), a.data(), a.data(), out.data(), kLanes);
        for (std::size_t i = 0; i < kLanes; ++i) {
          ASSERT_TRUE(same(out[i], base[i])) << isa_name(isa) << " op " << op << " of " << a[i];
        }
      }
    }
  }
}

TEST(Simd, ReductionsAreTheFoldingTree) {
  std::mt19937 random(3);
  for (int round = 0; round < 1000; ++round) {
    const Lanes a = random_lanes(random, false);
    Lanes sum = a;
    Lanes largest = a;
    for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
      for (std::size_t i = 0; i < half; ++i) {
        sum[i] = sum[i] + sum[i + half];
        largest[i] = largest[i] > largest[i + half] ? largest[i] : largest[i + half];
      }
    }
    for (const Isa isa : tested_isas()) {
      ASSERT_TRUE(same(probe(isa).reduce_add(a.data()), sum[0])) << isa_name(isa);
      ASSERT_TRUE(same(probe(isa).reduce_max(a.data()), largest[0])) << isa_name(isa);
    }
  }
}

TEST(Simd, TransposeMovesEveryLane) {
  std::array<float, kLanes * kLanes> in;
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = float_of(static_cast<std::uint32_t>(i * 0x01010101U));
  for (const Isa isa : tested_isas()) {
    std::array<float, kLanes * kLanes> out;
    probe(isa).transpose(in.data(), out.data());
    for (std::size_t i = 0; i < kLanes; ++i) {
      for (std::size_t j = 0; j < kLanes; ++j) {
        ASSERT_EQ(bits_of(out[j * kLanes + i]), bits_of(in[i * kLanes + j])) << isa_name(isa);
      }
    }
  }
}

TEST(Simd, InterleaveWorksInGroupsOfEight) {
  std::array<std::uint16_t, 2 * kLanes> a;
  std::array<std::uint16_t, 2 * kLanes> b;
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<std::uint16_t>(i);
    b[i] = static_cast<std::uint16_t>(0xff00U + i);
  }
  for (const Isa isa : tested_isas()) {
    std::array<std::uint16_t, 4 * kLanes> out;
    probe(isa).interleave(a.data(), b.data(), out.data());
    for (std::size_t i = 0; i < a.size(); ++i) {
      const std::size_t pair = (i % 8 < 4 ? 0 : kLanes) + i / 8 * 4 + i % 4;
      ASSERT_EQ(out[2 * pair], a[i]) << isa_name(isa) << " " << i;
      ASSERT_EQ(out[2 * pair + 1], b[i]) << isa_name(isa) << " " << i;
    }
  }
}

TEST(Simd, Bf16RoundingEqualsTheScalarOne) {
  std::vector<float> in;
  for (std::uint64_t u = 0; u < (std::uint64_t{1} << 32); u += 4099)
    in.push_back(float_of(static_cast<std::uint32_t>(u)));
  for (std::uint32_t upper = 0; upper < 0x10000U; upper += 5) {  // around every kind of tie
    for (const std::uint32_t low : {0x7fffU, 0x8000U, 0x8001U, 0xffffU})
      in.push_back(float_of((upper << 16) | low));
  }
  in.resize(in.size() / kLanes * kLanes);
  for (const Isa isa : tested_isas()) {
    for (std::size_t i = 0; i < in.size(); i += kLanes) {
      std::array<std::uint16_t, kLanes> out;
      probe(isa).store_bf16(&in[i], out.data(), kLanes);
      for (std::size_t j = 0; j < kLanes; ++j) {
        ASSERT_EQ(out[j], f32_to_bf16(in[i + j])) << isa_name(isa) << " bits " << bits_of(in[i + j]);
      }
    }
  }
}

TEST(Simd, NarrowFormatsWidenExactly) {
  for (const Isa isa : tested_isas()) {
    for (std::uint32_t first = 0; first < 0x10000U; first += kLanes) {
      std::array<std::uint16_t, kLanes> in;
      std::array<std::uint8_t, kLanes> bytes;
      for (std::size_t i = 0; i < kLanes; ++i) {
        in[i] = static_cast<std::uint16_t>(first + i);
        bytes[i] = static_cast<std::uint8_t>(first / kLanes * 3 + i);
      }
      Lanes bf16;
      Lanes f16;
      Lanes u8;
      probe(isa).load_bf16(in.data(), bf16.data(), kLanes);
      probe(isa).load_f16(in.data(), f16.data());
      probe(isa).widen_u8(bytes.data(), u8.data());
      for (std::size_t i = 0; i < kLanes; ++i) {
        ASSERT_EQ(bits_of(bf16[i]), bits_of(bf16_to_f32(in[i]))) << isa_name(isa);
        ASSERT_TRUE(same(f16[i], f16_to_f32(in[i]))) << isa_name(isa) << " half " << in[i];
        ASSERT_EQ(u8[i], static_cast<float>(bytes[i])) << isa_name(isa);
      }
    }
  }
}

/// Two pages of which the second may not be touched.
class GuardedPage {
 public:
  GuardedPage() : size_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {
    void* p = mmap(nullptr, 2 * size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(p, MAP_FAILED);
    base_ = static_cast<std::byte*>(p);
    EXPECT_EQ(mprotect(base_ + size_, size_, PROT_NONE), 0);
  }
  ~GuardedPage() { munmap(base_, 2 * size_); }
  GuardedPage(const GuardedPage&) = delete;
  GuardedPage& operator=(const GuardedPage&) = delete;
  /// The last `n` elements before the guard.
  template <class T>
  T* last(int n) const {
    return reinterpret_cast<T*>(base_ + size_) - n;
  }

 private:
  std::size_t size_;
  std::byte* base_;
};

TEST(Simd, PartialLoadsAndStoresStayInside) {
  const GuardedPage page;
  for (const Isa isa : tested_isas()) {
    for (int n = 0; n <= kLanes; ++n) {
      float* p = page.last<float>(n);
      for (int i = 0; i < n; ++i) p[i] = static_cast<float>(i + 1);
      if (n > 0) p[-1] = -7;
      Lanes out;
      out.fill(99);
      probe(isa).apply(VecOp::kAdd, p, p, p, out.data(), n);
      for (int i = 0; i < kLanes; ++i) {
        ASSERT_EQ(out[static_cast<std::size_t>(i)], i < n ? static_cast<float>(2 * i + 2) : 99.0F)
            << isa_name(isa);
      }
      probe(isa).apply(VecOp::kNegate, p, p, p, p, n);  // stores up to the guard
      for (int i = 0; i < n; ++i) ASSERT_EQ(p[i], -static_cast<float>(i + 1));
      if (n > 0) {
        ASSERT_EQ(p[-1], -7);
      }

      auto* h = page.last<std::uint16_t>(n);
      Lanes values;
      for (std::size_t i = 0; i < kLanes; ++i) values[i] = static_cast<float>(i) - 3;
      probe(isa).store_bf16(values.data(), h, n);
      probe(isa).load_bf16(h, out.data(), n);
      for (int i = 0; i < n; ++i) {
        ASSERT_EQ(out[static_cast<std::size_t>(i)], values[static_cast<std::size_t>(i)]) << isa_name(isa);
      }
    }
  }
}

/// A bf16 whose exponent field is e.
std::uint16_t bf16_with_exponent(std::mt19937& random, unsigned e) {
  const auto mantissa = random() % 4 == 0 ? 0U : static_cast<unsigned>(random() & 127U);
  return static_cast<std::uint16_t>(((random() & 1U) << 15) | (e << 7) | mantissa);
}

TEST(Simd, PairDotsHaveTheSameBitsOnEveryIsa) {
  std::mt19937 random(4);
  int tiny = 0;
  for (int round = 0; round < 4000; ++round) {
    Lanes acc;
    std::array<std::uint16_t, 2 * kLanes> a;
    std::array<std::uint16_t, 2 * kLanes> b;
    for (std::size_t i = 0; i < kLanes; ++i) {
      // Half of the rounds near the smallest normal number, where flushing and rounding meet.
      const bool small = round % 2 == 0;
      const unsigned ea =
          small ? 40U + static_cast<unsigned>(random() % 60) : static_cast<unsigned>(random() % 255);
      const unsigned eb = small ? 104U + static_cast<unsigned>(random() % 46) - (ea - 40U)
                                : static_cast<unsigned>(random() % 255);
      for (std::size_t j = 0; j < 2; ++j) {
        a[2 * i + j] = bf16_with_exponent(random, random() % 8 == 0 ? 0 : ea);
        b[2 * i + j] = bf16_with_exponent(random, random() % 8 == 0 ? 0 : eb);
      }
      acc[i] = any_finite(random);
      if (small)
        acc[i] = float_of((bits_of(acc[i]) & 0x807fffffU) | (static_cast<std::uint32_t>(random() % 4) << 23));
      if (small && random() % 2 == 0) acc[i] = std::copysign(0x1p-126F, acc[i]);
    }
    const bool broadcast = round % 3 == 0;
    Lanes base;
    probe(Isa::kGeneric).dot_pairs(acc.data(), a.data(), b.data(), broadcast, base.data());
    for (const Isa isa : tested_isas()) {
      Lanes out;
      probe(isa).dot_pairs(acc.data(), a.data(), b.data(), broadcast, out.data());
      for (std::size_t i = 0; i < kLanes; ++i) {
        ASSERT_TRUE(same(out[i], base[i]))
            << isa_name(isa) << ": " << acc[i] << " + pair -> " << out[i] << " not " << base[i];
        if (std::fabs(base[i]) == 0x1p-126F) ++tiny;
      }
    }
  }
  EXPECT_GT(tiny, 100);  // the doubtful case was met
}

TEST(Simd, PairDotsAddTheOddProductFirst) {
  for (const Isa isa : tested_isas()) {
    std::array<std::uint16_t, 2 * kLanes> a{};
    std::array<std::uint16_t, 2 * kLanes> b{};
    Lanes acc{};
    // 1 + 2^-24 rounds to 1, but 2^-23 survives: the order of -1 and 2^-24 shows.
    acc[0] = 1;
    a[0] = f32_to_bf16(-1);
    b[0] = f32_to_bf16(1);
    a[1] = f32_to_bf16(0x1p-24F);
    b[1] = f32_to_bf16(1);
    Lanes out;
    probe(isa).dot_pairs(acc.data(), a.data(), b.data(), false, out.data());
    EXPECT_EQ(out[0], 0.0F) << isa_name(isa);
    std::swap(a[0], a[1]);
    probe(isa).dot_pairs(acc.data(), a.data(), b.data(), false, out.data());
    EXPECT_EQ(out[0], 0x1p-24F) << isa_name(isa);
  }
}

}  // namespace
}  // namespace firstlight
