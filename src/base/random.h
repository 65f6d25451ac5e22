// All randomness of the engine. A stream is a pure function of (seed, position): nothing has to be stored to
// resume it, and one consumer's draws never shift another's.
#pragma once

#include <cstdint>
#include <limits>

namespace firstlight {

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014, "Fast Splittable Pseudorandom Number Generators",
/// with Stafford's variant 13 constants): a bijection in which every input bit flips half of the output bits.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// The 64 bits at `position` of the stream `seed`. The seed is mixed first, so that neighbouring seeds are
/// unrelated streams and not one stream shifted.
constexpr std::uint64_t random_bits(std::uint64_t seed, std::uint64_t position) {
  constexpr std::uint64_t kGoldenGamma = 0x9e3779b97f4a7c15u;  // odd, 2^64 / golden ratio: SplitMix64's step
  return mix64(mix64(seed + kGoldenGamma) + position * kGoldenGamma);
}

/// [0, 1) with all 53 bits a double can hold.
constexpr double random_uniform(std::uint64_t seed, std::uint64_t position) {
  return static_cast<double>(random_bits(seed, position) >> 11) * 0x1p-53;
}

/// A walk along one stream; a standard uniform random bit generator.
class Random {
 public:
  using result_type = std::uint64_t;

  explicit constexpr Random(std::uint64_t seed) : seed_(seed) {}

  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return std::numeric_limits<result_type>::max(); }
  constexpr result_type operator()() { return random_bits(seed_, position_++); }
  constexpr double uniform() { return random_uniform(seed_, position_++); }

 private:
  std::uint64_t seed_;
  std::uint64_t position_ = 0;
};

}  // namespace firstlight
