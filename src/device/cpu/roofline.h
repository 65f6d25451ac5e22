// What this machine can do, measured: multiply-adds from registers and reading memory, per instruction set.
// Performance claims are ratios to these numbers, taken in the same run.
//
// Header only: benchmarks are programs of one file, and `firstlight bench` is the only other user.
#pragma once

#include <immintrin.h>
#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

#include "base/thread_pool.h"
#include "device/cpu/isa.h"

namespace firstlight::bench {

/// CPU time of the calling thread: unlike the wall clock it does not run while a neighbour has the core.
inline double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

/// Runs body(thread) on every thread; the seconds of CPU of the slowest.
template <class Body>
double slowest_seconds(ThreadPool& pool, const Body& body) {
  std::vector<double> seconds(static_cast<std::size_t>(pool.threads()));
  pool.run([&](int t) {
    const double start = thread_seconds();
    body(t);
    seconds[static_cast<std::size_t>(t)] = thread_seconds() - start;
  });
  return *std::max_element(seconds.begin(), seconds.end());
}

inline double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v.size() % 2 == 1 ? v[v.size() / 2] : (v[v.size() / 2 - 1] + v[v.size() / 2]) / 2;
}

// 12 independent chains: more than latency x throughput of any multiply-add here (at most 6 x 2).
#define FL_CHAINS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

__attribute__((target("avx512f,avx512bf16"), noinline)) inline void bf16_chains_avx512(std::int64_t steps) {
#define FL_CHAIN(i) __m512 y##i = _mm512_setzero_ps();
  FL_CHAINS(FL_CHAIN)
#undef FL_CHAIN
  const auto a = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3f803f80));
  for (std::int64_t s = 0; s < steps; ++s) {
#define FL_CHAIN(i)                    \
  y##i = _mm512_dpbf16_ps(y##i, a, a); \
  __asm__ volatile("" : "+v"(y##i));
    FL_CHAINS(FL_CHAIN)
#undef FL_CHAIN
  }
}

__attribute__((target("avx512f"), noinline)) inline void f32_chains_avx512(std::int64_t steps) {
#define FL_CHAIN(i) __m512 y##i = _mm512_setzero_ps();
  FL_CHAINS(FL_CHAIN)
#undef FL_CHAIN
  const __m512 a = _mm512_set1_ps(0.5F);
  for (std::int64_t s = 0; s < steps; ++s) {
#define FL_CHAIN(i)                   \
  y##i = _mm512_fmadd_ps(y##i, a, a); \
  __asm__ volatile("" : "+v"(y##i));
    FL_CHAINS(FL_CHAIN)
#undef FL_CHAIN
  }
}

__attribute__((target("avx2,fma"), noinline)) inline void f32_chains_avx2(std::int64_t steps) {
#define FL_CHAIN(i) __m256 y##i = _mm256_setzero_ps();
  FL_CHAINS(FL_CHAIN)
#undef FL_CHAIN
  const __m256 a = _mm256_set1_ps(0.5F);
  for (std::int64_t s = 0; s < steps; ++s) {
#define FL_CHAIN(i)                   \
  y##i = _mm256_fmadd_ps(y##i, a, a); \
  __asm__ volatile("" : "+x"(y##i));
    FL_CHAINS(FL_CHAIN)
#undef FL_CHAIN
  }
}

/// The plain build has no fused instruction; its kernels are for checking, so its roof is mul + add in SSE.
__attribute__((noinline)) inline void f32_chains_generic(std::int64_t steps) {
#define FL_CHAIN(i) __m128 y##i = _mm_setzero_ps();
  FL_CHAINS(FL_CHAIN)
#undef FL_CHAIN
  const __m128 a = _mm_set1_ps(0.5F);
  for (std::int64_t s = 0; s < steps; ++s) {
#define FL_CHAIN(i)                          \
  y##i = _mm_add_ps(_mm_mul_ps(y##i, a), a); \
  __asm__ volatile("" : "+x"(y##i));
    FL_CHAINS(FL_CHAIN)
#undef FL_CHAIN
  }
}

__attribute__((target("avx512f,avx512bw,avx512vnni"), noinline)) inline void int8_chains_avx512(
    std::int64_t steps) {
#define FL_CHAIN(i) __m512i y##i = _mm512_setzero_si512();
  FL_CHAINS(FL_CHAIN)
#undef FL_CHAIN
  const __m512i a = _mm512_set1_epi8(1);
  for (std::int64_t s = 0; s < steps; ++s) {
#define FL_CHAIN(i)                       \
  y##i = _mm512_dpbusd_epi32(y##i, a, a); \
  __asm__ volatile("" : "+v"(y##i));
    FL_CHAINS(FL_CHAIN)
#undef FL_CHAIN
  }
}

/// Without an instruction for it: products of bytes in pairs, pairs to 32 bits, and the sum.
__attribute__((target("avx2"), noinline)) inline void int8_chains_avx2(std::int64_t steps) {
#define FL_CHAIN(i) __m256i y##i = _mm256_setzero_si256();
  FL_CHAINS(FL_CHAIN)
#undef FL_CHAIN
  __m256i a = _mm256_set1_epi8(1);
  const __m256i ones = _mm256_set1_epi16(1);
  for (std::int64_t s = 0; s < steps; ++s) {
    // `a` seems to change, or the compiler would compute its products once.
#define FL_CHAIN(i)                                                                   \
  __asm__ volatile("" : "+x"(a));                                                     \
  y##i = _mm256_add_epi32(y##i, _mm256_madd_epi16(_mm256_maddubs_epi16(a, a), ones)); \
  __asm__ volatile("" : "+x"(y##i));
    FL_CHAINS(FL_CHAIN)
#undef FL_CHAIN
  }
}

/// The plain build widens bytes to 16 bits; this counts the products alone.
__attribute__((noinline)) inline void int8_chains_generic(std::int64_t steps) {
#define FL_CHAIN(i) __m128i y##i = _mm_setzero_si128();
  FL_CHAINS(FL_CHAIN)
#undef FL_CHAIN
  __m128i a = _mm_set1_epi16(1);
  for (std::int64_t s = 0; s < steps; ++s) {
#define FL_CHAIN(i)                                 \
  __asm__ volatile("" : "+x"(a));                   \
  y##i = _mm_add_epi32(y##i, _mm_madd_epi16(a, a)); \
  __asm__ volatile("" : "+x"(y##i));
    FL_CHAINS(FL_CHAIN)
#undef FL_CHAIN
  }
}
#undef FL_CHAINS

/// Multiply-adds of one step of the chains above, all lanes.
struct Chains {
  void (*run)(std::int64_t steps);
  double operations;  // a multiply-add counts as two
};

inline Chains f32_chains(Isa isa) {
  switch (isa) {
    case Isa::kAvx512:
      return {&f32_chains_avx512, 12 * 16 * 2};
    case Isa::kAvx2:
      return {&f32_chains_avx2, 12 * 8 * 2};
    case Isa::kGeneric:
      break;
  }
  return {&f32_chains_generic, 12 * 4 * 2};
}
/// The best instruction for bf16: vdpbf16ps where it exists, else widening and f32.
inline Chains bf16_chains(Isa isa) {
  return isa == Isa::kAvx512 ? Chains{&bf16_chains_avx512, 12 * 32 * 2} : f32_chains(isa);
}

/// The best instructions for 8-bit integers: vpdpbusd, or what stands for it.
inline Chains int8_chains(Isa isa) {
  switch (isa) {
    case Isa::kAvx512:
      return {&int8_chains_avx512, 12 * 64 * 2};
    case Isa::kAvx2:
      return {&int8_chains_avx2, 12 * 32 * 2};
    case Isa::kGeneric:
      break;
  }
  return {&int8_chains_generic, 12 * 8 * 2};
}

/// Operations per second of all threads of the pool together.
inline double measure_peak(ThreadPool& pool, Chains chains) {
  constexpr std::int64_t kSteps = 200'000;  // below a millisecond: neighbours interrupt few samples
  const double seconds = slowest_seconds(pool, [&](int) { chains.run(kSteps); });
  return chains.operations * static_cast<double>(kSteps) * pool.threads() / seconds;
}

/// Reads 64-byte aligned memory, a multiple of 64 bytes, in order. Of wide and narrow loads, with and without
/// asking ahead, narrow ones that leave it to the hardware were the fastest on Zen 4 (by up to 15 %).
__attribute__((noinline)) inline void read_all(const std::byte* p, std::int64_t bytes) {
  const auto* v = reinterpret_cast<const __m128i*>(p);
  __m128i a = _mm_setzero_si128();
  __m128i b = a;
  __m128i c = a;
  __m128i d = a;
  for (std::int64_t i = 0; i < bytes / 16; i += 4) {
    a = _mm_or_si128(a, _mm_load_si128(v + i));
    b = _mm_or_si128(b, _mm_load_si128(v + i + 1));
    c = _mm_or_si128(c, _mm_load_si128(v + i + 2));
    d = _mm_or_si128(d, _mm_load_si128(v + i + 3));
  }
  __asm__ volatile("" : : "x"(a), "x"(b), "x"(c), "x"(d));
}

/// Bytes per second of all threads together; each reads a contiguous share.
inline double measure_read(ThreadPool& pool, const std::byte* p, std::int64_t bytes) {
  constexpr std::int64_t kUnit = 4096;
  const double seconds = slowest_seconds(pool, [&](int t) {
    const Range share = static_range(bytes / kUnit, t, pool.threads());
    read_all(p + share.begin * kUnit, (share.end - share.begin) * kUnit);
  });
  const std::int64_t read = bytes / kUnit * kUnit;
  return static_cast<double>(read) / seconds;
}

/// The load average of the last minute; above the number of cores every number is suspect.
inline double load_average() {
  double load = 0;
  if (std::FILE* f = std::fopen("/proc/loadavg", "r")) {
    if (std::fscanf(f, "%lf", &load) != 1) load = 0;
    std::fclose(f);
  }
  return load;
}
inline bool machine_is_busy() { return load_average() > std::thread::hardware_concurrency(); }

}  // namespace firstlight::bench
