// The vector vocabulary in plain C++: 16 floats are an array. The same names and bits as the other
// simd_*.h, so that the logic of every kernel runs on any machine. README.md lists the vocabulary.
#pragma once

#include <cstdint>

#ifdef FL_ISA_NS
#error "one instruction set per translation unit"
#endif
#define FL_ISA_NS generic
#define FL_ISA_NAME "generic"
#define FL_INLINE static inline __attribute__((always_inline))

#include "device/cpu/simd_dot_model.h"

namespace firstlight::FL_ISA_NS {

constexpr int kLanes = 16;

struct Vec {
  float v[kLanes];
};
struct IVec {
  std::int32_t v[kLanes];
};
struct Mask {
  std::uint32_t m;
};
/// 16 pairs of bf16: lane i holds elements 2i (low half) and 2i + 1 (high half).
struct Pairs {
  std::uint32_t v[kLanes];
};

// Loops over the lanes, written once.
template <class R, class F>
FL_INLINE R each_lane(F f) {
  R r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = f(i);
  return r;
}
template <class F>
FL_INLINE Mask each_bit(F f) {
  std::uint32_t m = 0;
  for (int i = 0; i < kLanes; ++i) m |= static_cast<std::uint32_t>(f(i)) << i;
  return {m};
}
FL_INLINE std::uint32_t unsigned_of(std::int32_t x) { return static_cast<std::uint32_t>(x); }
FL_INLINE std::int32_t signed_of(std::uint32_t x) { return static_cast<std::int32_t>(x); }

// ---- lanes ----------------------------------------------------------------------------------------
FL_INLINE Mask first_lanes(int n) { return {n >= kLanes ? 0xffffU : (1U << n) - 1U}; }
FL_INLINE unsigned bits(Mask a) { return a.m; }
FL_INLINE bool any(Mask a) { return a.m != 0; }
FL_INLINE bool all(Mask a) { return a.m == 0xffffU; }
FL_INLINE Mask operator&(Mask a, Mask b) { return {a.m & b.m}; }
FL_INLINE Mask operator|(Mask a, Mask b) { return {a.m | b.m}; }
FL_INLINE Mask operator~(Mask a) { return {~a.m & 0xffffU}; }

// ---- memory: no alignment needed; the _n forms touch n <= 16 elements and fill with zero ----------
FL_INLINE Vec load_n(const float* p, int n) {
  Vec a{};
  __builtin_memcpy(a.v, p, static_cast<std::size_t>(n) * sizeof(float));
  return a;
}
FL_INLINE Vec load(const float* p) { return load_n(p, kLanes); }
FL_INLINE void store_n(float* p, Vec a, int n) {
  __builtin_memcpy(p, a.v, static_cast<std::size_t>(n) * sizeof(float));
}
FL_INLINE void store(float* p, Vec a) { store_n(p, a, kLanes); }
FL_INLINE Vec broadcast(float x) {
  return each_lane<Vec>([&](int) { return x; });
}
FL_INLINE Vec zero() { return broadcast(0.0F); }
FL_INLINE IVec load_int(const std::int32_t* p) {
  IVec a;
  __builtin_memcpy(a.v, p, sizeof(a.v));
  return a;
}
FL_INLINE void store_int(std::int32_t* p, IVec a) { __builtin_memcpy(p, a.v, sizeof(a.v)); }
FL_INLINE IVec broadcast_int(std::int32_t x) {
  return each_lane<IVec>([&](int) { return x; });
}
FL_INLINE IVec load_u8(const std::uint8_t* p) {
  return each_lane<IVec>([&](int i) { return std::int32_t{p[i]}; });
}
FL_INLINE void store_bytes(std::int8_t* p, IVec a) {
  for (int i = 0; i < kLanes; ++i) p[i] = static_cast<std::int8_t>(a.v[i]);
}
FL_INLINE void prefetch(const void* p) { __builtin_prefetch(p); }
/// Into the second level: what is wanted after other work that needs the first.
FL_INLINE void prefetch_later(const void* p) { __builtin_prefetch(p, 0, 2); }

// ---- arithmetic: IEEE single, round to nearest even -------------------------------------------------
FL_INLINE Vec operator+(Vec a, Vec b) {
  return each_lane<Vec>([&](int i) { return a.v[i] + b.v[i]; });
}
FL_INLINE Vec operator-(Vec a, Vec b) {
  return each_lane<Vec>([&](int i) { return a.v[i] - b.v[i]; });
}
FL_INLINE Vec operator*(Vec a, Vec b) {
  return each_lane<Vec>([&](int i) { return a.v[i] * b.v[i]; });
}
FL_INLINE Vec operator/(Vec a, Vec b) {
  return each_lane<Vec>([&](int i) { return a.v[i] / b.v[i]; });
}
/// a * b + c, rounded once.
FL_INLINE Vec fma(Vec a, Vec b, Vec c) {
  return each_lane<Vec>([&](int i) { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); });
}
FL_INLINE Vec sqrt(Vec a) {
  return each_lane<Vec>([&](int i) { return __builtin_sqrtf(a.v[i]); });
}
/// a > b ? a : b in every lane, so b where either is NaN.
FL_INLINE Vec max(Vec a, Vec b) {
  return each_lane<Vec>([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
/// a < b ? a : b in every lane, so b where either is NaN.
FL_INLINE Vec min(Vec a, Vec b) {
  return each_lane<Vec>([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}

// ---- integers -------------------------------------------------------------------------------------
FL_INLINE IVec operator+(IVec a, IVec b) {
  return each_lane<IVec>([&](int i) { return signed_of(unsigned_of(a.v[i]) + unsigned_of(b.v[i])); });
}
FL_INLINE IVec operator-(IVec a, IVec b) {
  return each_lane<IVec>([&](int i) { return signed_of(unsigned_of(a.v[i]) - unsigned_of(b.v[i])); });
}
FL_INLINE IVec operator&(IVec a, IVec b) {
  return each_lane<IVec>([&](int i) { return a.v[i] & b.v[i]; });
}
FL_INLINE IVec operator|(IVec a, IVec b) {
  return each_lane<IVec>([&](int i) { return a.v[i] | b.v[i]; });
}
FL_INLINE IVec operator^(IVec a, IVec b) {
  return each_lane<IVec>([&](int i) { return a.v[i] ^ b.v[i]; });
}
template <int N>
FL_INLINE IVec shift_left(IVec a) {
  return each_lane<IVec>([&](int i) { return signed_of(unsigned_of(a.v[i]) << N); });
}
/// Logical: zeros enter from the left.
template <int N>
FL_INLINE IVec shift_right(IVec a) {
  return each_lane<IVec>([&](int i) { return signed_of(unsigned_of(a.v[i]) >> N); });
}
template <int N>
FL_INLINE IVec shift_right_signed(IVec a) {
  return each_lane<IVec>([&](int i) { return a.v[i] >> N; });
}
/// Clears the low half of every lane.
FL_INLINE IVec high_halves(IVec a) { return a & broadcast_int(signed_of(0xffff0000U)); }
FL_INLINE IVec as_int(Vec a) {
  return each_lane<IVec>([&](int i) { return __builtin_bit_cast(std::int32_t, a.v[i]); });
}
FL_INLINE Vec as_float(IVec a) {
  return each_lane<Vec>([&](int i) { return __builtin_bit_cast(float, a.v[i]); });
}
/// Rounds to nearest even; INT32_MIN for NaN and values outside int32.
FL_INLINE IVec to_int(Vec a) {
  return each_lane<IVec>([&](int i) {
    const float x = a.v[i];
    if (!(x >= -0x1p31F && x < 0x1p31F)) return INT32_MIN;
    // Adding 1.5 * 2^52 rounds to an integer and leaves it in the low bits of the double.
    const double shifted = static_cast<double>(x) + 0x1.8p52;
    return signed_of(static_cast<std::uint32_t>(__builtin_bit_cast(std::uint64_t, shifted)));
  });
}
FL_INLINE Vec to_float(IVec a) {
  return each_lane<Vec>([&](int i) { return static_cast<float>(a.v[i]); });
}
/// The nearest integer, ties to even, with the sign of a.
FL_INLINE Vec round_even(Vec a) {
  return each_lane<Vec>([&](int i) {
    const float x = a.v[i];
    const float size = __builtin_fabsf(x);
    // Adding 2^23 rounds to an integer; from there on every float is one.
    return size < 0x1p23F ? __builtin_copysignf((size + 0x1p23F) - 0x1p23F, x) : x;
  });
}
/// a 2^n, rounded once, for integers n of [-160, 160] and a of [1/2, 2]; NaN where either is NaN.
FL_INLINE Vec times_power(Vec a, Vec n) {
  // In two factors, because the exponent of one ends at -126 and 127: only the last product rounds.
  const auto power_of_two = [](std::int32_t e) {
    return __builtin_bit_cast(float, (static_cast<std::uint32_t>(e) + 127U) << 23);
  };
  const IVec power = to_int(n);
  return each_lane<Vec>([&](int i) {
    const std::int32_t half = power.v[i] >> 1;
    return a.v[i] * power_of_two(half) * power_of_two(power.v[i] - half);
  });
}

/// acc + the sum of the products of a lane's 4 unsigned bytes of u with the signed bytes of s. Two
/// neighbouring products must not exceed 16 bits together: the AVX2 instruction saturates there.
FL_INLINE IVec dot_bytes(IVec acc, IVec u, IVec s) {
  return each_lane<IVec>([&](int i) {
    std::int32_t sum = acc.v[i];
    for (int b = 0; b < 32; b += 8) {
      const auto x = static_cast<std::uint8_t>(static_cast<std::uint32_t>(u.v[i]) >> b);
      const auto y = static_cast<std::int8_t>(static_cast<std::uint32_t>(s.v[i]) >> b);
      sum += x * y;
    }
    return sum;
  });
}
/// The 16 bytes at p in each quarter.
FL_INLINE IVec repeated_bytes(const std::uint8_t* p) {
  IVec a;
  for (int q = 0; q < 4; ++q) __builtin_memcpy(a.v + 4 * q, p, 16);
  return a;
}
/// Every byte replaced by that byte of a table of repeated_bytes; indices below 16.
FL_INLINE IVec lookup_bytes(IVec table, IVec index) {
  IVec a;
  const auto* const t = reinterpret_cast<const unsigned char*>(table.v);
  const auto* const from = reinterpret_cast<const unsigned char*>(index.v);
  auto* const to = reinterpret_cast<unsigned char*>(a.v);
  for (int i = 0; i < 4 * kLanes; ++i) to[i] = t[from[i] & 15];
  return a;
}

// ---- comparison: false where either is NaN ----------------------------------------------------------
FL_INLINE Mask less(Vec a, Vec b) {
  return each_bit([&](int i) { return a.v[i] < b.v[i]; });
}
FL_INLINE Mask less_equal(Vec a, Vec b) {
  return each_bit([&](int i) { return a.v[i] <= b.v[i]; });
}
FL_INLINE Mask equal(Vec a, Vec b) {
  return each_bit([&](int i) { return a.v[i] == b.v[i]; });
}
FL_INLINE Mask is_nan(Vec a) {
  return each_bit([&](int i) { return a.v[i] != a.v[i]; });
}
FL_INLINE Mask equal(IVec a, IVec b) {
  return each_bit([&](int i) { return a.v[i] == b.v[i]; });
}
/// a where the mask is set, else b.
FL_INLINE Vec select(Mask m, Vec a, Vec b) {
  return each_lane<Vec>([&](int i) { return ((m.m >> i) & 1U) != 0 ? a.v[i] : b.v[i]; });
}
FL_INLINE IVec select(Mask m, IVec a, IVec b) {
  return each_lane<IVec>([&](int i) { return ((m.m >> i) & 1U) != 0 ? a.v[i] : b.v[i]; });
}
/// table[index & 15] in every lane.
FL_INLINE Vec lookup(Vec table, IVec index) {
  return each_lane<Vec>([&](int i) { return table.v[index.v[i] & 15]; });
}
/// Lanes 2i and 2i + 1 change places.
FL_INLINE Vec swap_neighbours(Vec a) {
  return each_lane<Vec>([&](int i) { return a.v[i ^ 1]; });
}
/// Lane j of row i becomes lane i of row j. Moves bits, whatever they mean.
FL_INLINE void transpose(Vec (&rows)[kLanes]) {
  for (int i = 0; i < kLanes; ++i) {
    for (int j = 0; j < i; ++j) {
      const float x = rows[i].v[j];
      rows[i].v[j] = rows[j].v[i];
      rows[j].v[i] = x;
    }
  }
}

// ---- reductions: halves are folded, 16 -> 8 -> 4 -> 2 -> 1; lane i meets lane i + half --------------
FL_INLINE float reduce_add(Vec a) {
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) a.v[i] = a.v[i] + a.v[i + half];
  }
  return a.v[0];
}
FL_INLINE float reduce_max(Vec a) {
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) a.v[i] = a.v[i] > a.v[i + half] ? a.v[i] : a.v[i + half];
  }
  return a.v[0];
}

// ---- narrow floats in memory ------------------------------------------------------------------------
FL_INLINE Vec load_bf16_n(const std::uint16_t* p, int n) {
  return each_lane<Vec>(
      [&](int i) { return i < n ? __builtin_bit_cast(float, std::uint32_t{p[i]} << 16) : 0.0F; });
}
FL_INLINE Vec load_bf16(const std::uint16_t* p) { return load_bf16_n(p, kLanes); }
FL_INLINE float widen_half(std::uint16_t h) {
  const std::uint32_t sign = std::uint32_t{h & 0x8000U} << 16;
  const std::uint32_t magnitude = h & 0x7fffU;
  if (magnitude >= 0x7c00U) {  // infinity, NaN (made quiet, as the hardware does)
    const std::uint32_t quiet = magnitude > 0x7c00U ? 0x400000U : 0U;
    return __builtin_bit_cast(float, sign | 0x7f800000U | ((magnitude & 0x3ffU) << 13) | quiet);
  }
  if (magnitude >= 0x400U) return __builtin_bit_cast(float, sign | ((magnitude << 13) + (112U << 23)));
  const float tiny = static_cast<float>(magnitude) * 0x1p-24F;
  return sign != 0 ? -tiny : tiny;
}
FL_INLINE Vec load_f16(const std::uint16_t* p) {
  return each_lane<Vec>([&](int i) { return widen_half(p[i]); });
}
/// The low half of every lane.
FL_INLINE void store_halves_n(std::uint16_t* p, IVec a, int n) {
  for (int i = 0; i < n; ++i) p[i] = static_cast<std::uint16_t>(a.v[i]);
}
FL_INLINE void store_halves(std::uint16_t* p, IVec a) { store_halves_n(p, a, kLanes); }

// ---- dot products of bf16 pairs ---------------------------------------------------------------------
FL_INLINE Pairs load_pairs_n(const std::uint16_t* p, int halves) {
  Pairs a{};
  __builtin_memcpy(a.v, p, static_cast<std::size_t>(halves) * sizeof(std::uint16_t));
  return a;
}
FL_INLINE Pairs load_pairs(const std::uint16_t* p) { return load_pairs_n(p, 2 * kLanes); }
FL_INLINE Pairs broadcast_pair(const std::uint16_t* p) {
  const std::uint32_t pair = std::uint32_t{p[0]} | (std::uint32_t{p[1]} << 16);
  return each_lane<Pairs>([&](int) { return pair; });
}
FL_INLINE void store_pairs(std::uint16_t* p, Pairs a) { __builtin_memcpy(p, a.v, sizeof(a.v)); }
/// Pairs (a_i, b_i) of single elements. Within each group of 8, `low` gets the first 4 and `high` the last 4.
FL_INLINE void interleave(Pairs a, Pairs b, Pairs& low, Pairs& high) {
  const auto element = [](const Pairs& p, int i) {
    return i % 2 == 0 ? p.v[i / 2] & 0xffffU : p.v[i / 2] >> 16;
  };
  const auto half = [&](int skipped) {
    return each_lane<Pairs>([&](int i) {
      const int e = i / 4 * 8 + skipped + i % 4;
      return element(a, e) | (element(b, e) << 16);
    });
  };
  low = half(0);
  high = half(4);
}
FL_INLINE Vec dot_pairs(Vec acc, Pairs a, Pairs b) {
  return each_lane<Vec>([&](int i) { return dot_pair(acc.v[i], a.v[i], b.v[i]); });
}

/// What the CPU must be told around dot_pairs, or around fma in its place: nothing, MXCSR has no say in it.
FL_INLINE unsigned enter_bf16_mode() { return 0; }
FL_INLINE void leave_bf16_mode(unsigned) {}

}  // namespace firstlight::FL_ISA_NS

#include "device/cpu/simd_common.h"  // IWYU pragma: export
