#include "base/thread_pool.h"

#include <immintrin.h>

#include <string>
#include <system_error>

#include "base/processors.h"
#include "base/result.h"

namespace firstlight {

namespace {
// Spin briefly (an operator of a decode step lasts microseconds), then park: a spinning barrier on busy
// cores costs an order of magnitude.
constexpr int kSpins = 2000;
}  // namespace

void set_float_mode() { _mm_setcsr(0x1f80); }

ThreadPool::ThreadPool(int threads) : threads_(threads) {
  check(threads >= 1, "a thread pool needs a thread");
  set_float_mode();
  workers_.reserve(static_cast<std::size_t>(threads - 1));
  const Processors processors = allowed_processors();
  const bool pinned = threads == processors.cores;
  try {
    for (int t = 1; t < threads; ++t) {
      const int processor = pinned ? processors.ids[static_cast<std::size_t>(t)] : -1;
      workers_.emplace_back([this, t, processor] { worker(t, processor); });
    }
  } catch (const std::system_error& error) {
    const std::size_t started = workers_.size() + 1;
    stop();
    throw std::system_error(error.code(), "only " + std::to_string(started) + " of " +
                                              std::to_string(threads) + " threads could be started");
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    epoch_.fetch_add(1);
  }
  wake_.notify_all();
  for (std::thread& w : workers_) w.join();
}

void ThreadPool::run_erased(Function function, const void* context) {
  if (threads_ == 1) {
    function(context, 0);
    return;
  }
  function_ = function;
  context_ = context;
  pending_.store(threads_ - 1, std::memory_order_relaxed);
  {
    const std::lock_guard lock(mutex_);
    epoch_.fetch_add(1, std::memory_order_release);
  }
  wake_.notify_all();
  function(context, 0);
  for (int i = 0; i < kSpins; ++i) {
    if (pending_.load(std::memory_order_acquire) == 0) return;
    _mm_pause();
  }
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return pending_.load(std::memory_order_acquire) == 0; });
}

void ThreadPool::worker(int thread, int processor) {
  if (processor >= 0) pin_to(processor);  // a refusal costs speed only
  set_float_mode();
  std::uint64_t seen = 0;
  for (;;) {
    int spins = 0;
    while (epoch_.load(std::memory_order_acquire) == seen && spins < kSpins) {
      _mm_pause();
      ++spins;
    }
    if (epoch_.load(std::memory_order_acquire) == seen) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this, seen] { return epoch_.load(std::memory_order_acquire) != seen; });
    }
    seen = epoch_.load(std::memory_order_acquire);
    if (stopping_) return;
    function_(context_, thread);
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      const std::lock_guard lock(mutex_);
      done_.notify_one();
    }
  }
}

}  // namespace firstlight
