// A fixed set of threads that run one function together. Work is partitioned statically by the callee
// from (thread, threads), never stolen: which thread does what never changes a result.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace firstlight {

/// [begin, end) of `thread`'s share of `count` items, contiguous, sizes differing by at most one.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
constexpr Range static_range(std::int64_t count, int thread, int threads) {
  return {count * thread / threads, count * (thread + 1) / threads};
}

class ThreadPool {
 public:
  /// `threads` >= 1; the caller is thread 0, so 1 starts none. With a thread for every core that
  /// the process may use, the others are bound to one each; the caller is not (what it starts would inherit
  /// that), and moves to the one that is left. With fewer threads none is: another process might choose the
  /// same cores.
  /// Throws std::system_error, which says how many threads there were, when the system gives no more.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int threads() const { return threads_; }

  /// Calls body(thread) once on every thread and returns when all are done. Allocates nothing.
  /// Not reentrant: body must not call run().
  template <class Body>
  void run(const Body& body) {
    run_erased([](const void* context, int thread) { (*static_cast<const Body*>(context))(thread); }, &body);
  }

  /// The same, when the whole job is worth a meeting of the threads: with less than kWorthMeeting
  /// multiply-adds the caller does every thread's share itself, one after the other.
  template <class Body>
  void run(std::int64_t multiply_adds, const Body& body) {
    if (multiply_adds >= kWorthMeeting) {
      run(body);
      return;
    }
    for (int thread = 0; thread < threads_; ++thread) body(thread);
  }

  /// A meeting takes 5 to 10 microseconds on idle cores (milliseconds on busy ones), in which a core streams
  /// this many bf16 weights from memory.
  static constexpr std::int64_t kWorthMeeting = std::int64_t{1} << 18;

 private:
  using Function = void (*)(const void*, int);
  void run_erased(Function function, const void* context);
  void worker(int thread, int processor);
  void stop();

  int threads_;
  std::vector<std::thread> workers_;
  Function function_ = nullptr;
  const void* context_ = nullptr;
  std::atomic<std::uint64_t> epoch_{0};
  std::atomic<int> pending_{0};
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
};

/// Every thread that computes sets the same floating-point mode: round to nearest, denormals kept.
void set_float_mode();

}  // namespace firstlight
