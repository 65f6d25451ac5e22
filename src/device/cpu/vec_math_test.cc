// exp and its relatives against double, over the whole range of float.
#include <array>
#include <functional>
#include <limits>

#include "device/cpu/cpu_testing.h"

namespace firstlight {
namespace {

using testing::bits_of;
using testing::float_of;
using testing::probe;
using testing::tested_isas;

constexpr int kLanes = 16;
constexpr float kInf = std::numeric_limits<float>::infinity();

float one(Isa isa, VecOp op, float x) {
  std::array<float, kLanes> in;
  std::array<float, kLanes> out;
  in.fill(x);
  probe(isa).apply(op, in.data(), in.data(), in.data(), out.data(), kLanes);
  return out[3];
}

struct Worst {
  double error = 0;
  float at = 0;
};

/// The largest error over a grid of all finite floats in [low, high], in units of the last place of the
/// exact value (2^-149 for denormals).
Worst worst_ulp(VecOp op, const std::function<double(double)>& exact, float low, float high) {
  const VecProbe& p = probe(detect());
  Worst worst;
  std::array<float, kLanes> in{};
  std::array<float, kLanes> out{};
  std::size_t filled = 0;
  const auto flush = [&] {
    p.apply(op, in.data(), in.data(), in.data(), out.data(), kLanes);
    for (std::size_t i = 0; i < filled; ++i) {
      const double want = exact(static_cast<double>(in[i]));
      int exponent = 0;
      std::frexp(want, &exponent);
      const double ulp = std::ldexp(1.0, std::max(exponent - 24, -149));
      const double error = std::fabs(static_cast<double>(out[i]) - want) / ulp;
      if (!(error <= worst.error)) worst = {error, in[i]};
    }
    filled = 0;
  };
  for (std::uint64_t u = 0; u < (std::uint64_t{1} << 32); u += 2003) {
    const float x = float_of(static_cast<std::uint32_t>(u));
    if (!(x >= low && x <= high)) continue;
    in[filled++] = x;
    if (filled == kLanes) flush();
  }
  flush();
  return worst;
}

double sigmoid(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }

// The bounds are the measured maxima, rounded up.
struct Case {
  const char* name;
  VecOp op;
  std::function<double(double)> exact;
  float low, high;
  double bound;
};

TEST(VecMath, ErrorsAgainstDouble) {
  const float big = std::numeric_limits<float>::max();
  const std::array cases = {
      Case{"exp", VecOp::kExp, [](double x) { return std::exp(x); }, -big, 88.722F, 1.1},
      Case{"sigmoid", VecOp::kSigmoid, sigmoid, -big, big, 2.6},
      Case{"silu", VecOp::kSilu, [](double x) { return x * sigmoid(x); }, -87.0F, big, 3.1},
      Case{"tanh", VecOp::kTanh, [](double x) { return std::tanh(x); }, -big, big, 3.1},
      Case{"softplus", VecOp::kSoftplus,
           [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }, -big, big, 2.6},
      Case{"log1p_unit", VecOp::kLog1pUnit, [](double x) { return std::log1p(x); }, 0.0F, 1.0F, 2.1},
  };
  for (const Case& c : cases) {
    const Worst worst = worst_ulp(c.op, c.exact, c.low, c.high);
    EXPECT_LE(worst.error, c.bound) << c.name << " at " << worst.at;
    RecordProperty(c.name, std::to_string(worst.error));
    if (std::getenv("FIRSTLIGHT_VERBOSE") != nullptr) {
      std::printf("%-12s %.3f ulp at %a\n", c.name, worst.error, static_cast<double>(worst.at));
    }
  }
}

TEST(VecMath, Extremes) {
  for (const Isa isa : tested_isas()) {
    EXPECT_EQ(one(isa, VecOp::kExp, -kInf), 0.0F);
    EXPECT_EQ(one(isa, VecOp::kExp, -1e30F), 0.0F);
    EXPECT_EQ(one(isa, VecOp::kExp, -104.0F), 0.0F);
    EXPECT_EQ(one(isa, VecOp::kExp, -103.9F), 0x1p-149F);
    EXPECT_EQ(one(isa, VecOp::kExp, 0.0F), 1.0F);
    EXPECT_EQ(one(isa, VecOp::kExp, -0.0F), 1.0F);
    EXPECT_EQ(one(isa, VecOp::kExp, 88.73F), kInf);
    EXPECT_EQ(one(isa, VecOp::kExp, 1e30F), kInf);
    EXPECT_EQ(one(isa, VecOp::kExp, kInf), kInf);
    EXPECT_LT(one(isa, VecOp::kExp, 88.722F), kInf);
    EXPECT_EQ(one(isa, VecOp::kSigmoid, -kInf), 0.0F);
    EXPECT_EQ(one(isa, VecOp::kSigmoid, kInf), 1.0F);
    EXPECT_EQ(one(isa, VecOp::kSigmoid, 0.0F), 0.5F);
    EXPECT_GT(one(isa, VecOp::kSigmoid, -103.0F), 0.0F);
    EXPECT_EQ(one(isa, VecOp::kTanh, kInf), 1.0F);
    EXPECT_EQ(one(isa, VecOp::kTanh, -1e20F), -1.0F);
    EXPECT_EQ(bits_of(one(isa, VecOp::kTanh, -0.0F)), bits_of(-0.0F));
    EXPECT_EQ(one(isa, VecOp::kTanh, 1e-30F), 1e-30F);
    EXPECT_EQ(one(isa, VecOp::kSoftplus, 1e20F), 1e20F);
    EXPECT_EQ(one(isa, VecOp::kSoftplus, kInf), kInf);
    EXPECT_EQ(one(isa, VecOp::kSoftplus, -kInf), 0.0F);
    EXPECT_EQ(one(isa, VecOp::kSilu, 0.0F), 0.0F);
    EXPECT_EQ(one(isa, VecOp::kSilu, 1e30F), 1e30F);
    EXPECT_EQ(one(isa, VecOp::kSilu, -1e30F), 0.0F);
    for (int op = static_cast<int>(VecOp::kExp); op < kVecOps; ++op) {
      EXPECT_TRUE(std::isnan(one(isa, static_cast<VecOp>(op), std::numeric_limits<float>::quiet_NaN())))
          << isa_name(isa) << " op " << op;
    }
  }
}

}  // namespace
}  // namespace firstlight
