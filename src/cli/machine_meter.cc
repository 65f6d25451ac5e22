#include "cli/machine_meter.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/memory_limit.h"
#include "base/result.h"
#include "device/cpu/roofline.h"

namespace firstlight {
namespace {

constexpr std::int64_t kPart = std::int64_t{64} << 20;  // more than the caches of a few cores hold
constexpr int kParts = 4;                               // read in turn, so that none is there still

/// Whole models are timed by the clock, and so is the machine: threads that run at once share its memory and,
/// where they share a core, its arithmetic.
double seconds(ThreadPool& pool, const auto& body) {
  const auto start = std::chrono::steady_clock::now();
  pool.run(body);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Result<std::unique_ptr<MachineMeter>> MachineMeter::create(Model& model) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  constexpr std::size_t kBytes = (kParts * kPart + kHugePage - 1) / kHugePage * kHugePage;
  const bool fits = available_memory() >= static_cast<std::int64_t>(kBytes);
  Memory memory(fits ? static_cast<std::byte*>(std::aligned_alloc(kHugePage, kBytes)) : nullptr, &std::free);
  if (memory == nullptr) {
    return Error{"not enough memory: bench needs " + std::to_string(kBytes >> 20) +
                 " MiB beside the model to measure the machine's memory with"};
  }
  madvise(memory.get(), kBytes, MADV_HUGEPAGE);  // as weights have it; a hint
  std::memset(memory.get(), 1, kBytes);
  return std::unique_ptr<MachineMeter>(new MachineMeter(model, std::move(memory)));
}

double MachineMeter::read_part() {
  const std::byte* part = memory_.get() + next_ * kPart;
  next_ = (next_ + 1) % kParts;
  const int threads = model_->pool().threads();
  return seconds(model_->pool(), [&](int thread) {
    constexpr std::int64_t kUnit = 4096;
    const Range share = static_range(kPart / kUnit, thread, threads);
    bench::read_all(part + share.begin * kUnit, (share.end - share.begin) * kUnit);
  });
}

void MachineMeter::sample_peaks() {
  constexpr int kRounds = 32;
  constexpr std::int64_t kSteps = 500'000;  // a millisecond: waking the threads is little
  const auto operations = [&](bench::Chains chains) {
    const double time = seconds(model_->pool(), [&](int) { chains.run(kSteps); });
    return chains.operations * static_cast<double>(kSteps) * model_->pool().threads() / time;
  };
  for (int round = 0; round < kRounds; ++round) {
    peaks_.read = std::max(peaks_.read, static_cast<double>(kPart) / read_part());
    peaks_.f32 = std::max(peaks_.f32, operations(bench::f32_chains(model_->isa())));
    peaks_.bf16 = std::max(peaks_.bf16, operations(bench::bf16_chains(model_->isa())));
    peaks_.int8 = std::max(peaks_.int8, operations(bench::int8_chains(model_->isa())));
  }
}

double MachineMeter::read_speed() {
  constexpr int kSamples = 2 * kParts;
  std::vector<double> times;
  for (int i = 0; i < kSamples; ++i) times.push_back(read_part());
  return static_cast<double>(kPart) / bench::median(times);
}

}  // namespace firstlight
