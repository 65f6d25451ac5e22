// Grouped-query attention against the machine's roofline, measured round-robin in the same run.
//
//   attention_bench [--rounds N] [--f32] [--threads N] [--only GROUP]
//
// Heads of 128 channels. Decode: one row over 32768 positions whose cache lies cold in memory, as a share of
// a pure read of the same bytes and of the peak of the best multiply-add for the cache's type (bf16:
// vdpbf16ps with AVX-512, else FMA). Prefill: 512 rows behind 0 and behind 8192 positions, as a share of that
// peak; pairs above the diagonal are not counted. Best of all rounds: CPU time of one thread, wall clock of
// several.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <string_view>

#include "device/cpu/roofline.h"
#include "ops/attention/op.h"
#include "ops/op_testing.h"

namespace firstlight::bench {
namespace {

using firstlight::testing::AlignedBytes;
using firstlight::testing::Random;
using firstlight::testing::TestOp;
using firstlight::testing::TestSession;
using firstlight::testing::Words;

constexpr std::int64_t kDim = 128;
constexpr std::int64_t kContext = 32768;
constexpr std::int64_t kPrompt = 512;  // rows of a prefill step
constexpr std::int64_t kPages = kContext / kPageTokens + kPrompt / kPageTokens;

struct Options {
  int rounds = 15;
  bool f32 = false;
  int threads = 1;
  std::int64_t only = 0;  // query heads of a key head; 0: all lines
};

class AttentionBench {
 public:
  AttentionBench(Isa isa, const Options& options, std::int64_t heads, std::int64_t kv_heads)
      : isa_(isa),
        options_(options),
        heads_(heads),
        kv_heads_(kv_heads),
        pool_(options.threads),
        session_(make_op(heads, kv_heads), {.isa = isa,
                                            .f32 = options.f32,
                                            .threads = options.threads,
                                            .max_tokens = kPrompt,
                                            .max_context = kPages * kPageTokens,
                                            .max_sequences = 1}),
        page_ids_(kPages) {
    Random random(1);
    inputs_ = {random.normals(kPrompt * heads * kDim), random.normals(kPrompt * kv_heads * kDim),
               random.normals(kPrompt * kv_heads * kDim)};
    output_.resize(inputs_[0].size());
    std::iota(page_ids_.begin(), page_ids_.end(), 0);
    for (const Words& w : inputs_) in_.push_back(w.data());
    out_.push_back(output_.data());
    scratch_ = std::make_unique<AlignedBytes>(session_.kernel().scratch_bytes());
    fill_cache();
  }

  void run() {
    const std::int64_t bytes = kContext / kPageTokens * session_.page_bytes();
    double peak = 0;
    double read = 0;
    std::vector<double> decode, first, later;
    for (int r = 0; r < options_.rounds; ++r) {
      peak = std::max(peak, measure_peak(pool_, options_.f32 ? f32_chains(isa_) : bf16_chains(isa_)));
      read = std::max(read, measure_read(pool_, reinterpret_cast<const std::byte*>(session_.page(0)), bytes));
      decode.push_back(seconds(1, kContext - 1));
      first.push_back(seconds(kPrompt, 0));
      later.push_back(seconds(kPrompt, 8192));
    }
    const auto best = [](const std::vector<double>& times) {
      return *std::min_element(times.begin(), times.end());
    };
    const auto share = [&](double time, double rows, double context) {
      const double pairs = rows * context + rows * (rows + 1) / 2;
      return 100 * 4 * kDim * static_cast<double>(heads_) * pairs / time / peak;
    };
    const double rate = static_cast<double>(bytes) / best(decode);
    std::printf("%2lld heads of %lld: decode %6.2f ms, %5.1f%% of a pure read (%.1f GB/s), %5.1f%% of peak\n",
                static_cast<long long>(heads_), static_cast<long long>(kv_heads_), best(decode) * 1e3,
                100 * rate / read, read / 1e9, share(best(decode), 1, kContext - 1));
    std::printf("                prefill %4.1f%% of peak from the start, %4.1f%% behind 8192 (%.1f Gop/s)\n",
                share(best(first), kPrompt, 0), share(best(later), kPrompt, 8192), peak / 1e9);
    std::fflush(stdout);
  }

 private:
  static TestOp make_op(std::int64_t heads, std::int64_t kv_heads) {
    TestOp op(attention_contract(), make_attention_cpu);
    op.value("q", heads * kDim).value("k", kv_heads * kDim).value("v", kv_heads * kDim);
    op.set("heads", heads).set("kv_heads", kv_heads).set("key_dim", kDim).set("value_dim", kDim);
    op.set("scale", 0.088);
    return op;
  }

  /// Random numbers, in whatever order the operator keeps them.
  void fill_cache() {
    const Words& from = inputs_[1];
    std::vector<std::byte> numbers(from.size() * (options_.f32 ? 4 : 2));
    for (std::size_t i = 0; i < from.size(); ++i) {
      const std::uint16_t half = f32_to_bf16(from[i]);
      if (options_.f32) {
        std::memcpy(numbers.data() + 4 * i, &from[i], 4);
      } else {
        std::memcpy(numbers.data() + 2 * i, &half, 2);
      }
    }
    const std::int64_t bytes = kPages * session_.page_bytes();
    for (std::int64_t at = 0; at < bytes; at += std::ssize(numbers)) {
      std::memcpy(session_.page(0) + at, numbers.data(),
                  static_cast<std::size_t>(std::min(std::ssize(numbers), bytes - at)));
    }
  }

  /// Wall clock of one step where several threads work, CPU time of one.
  double seconds(std::int64_t rows, std::int64_t position) {
    const std::int32_t tokens[kPrompt] = {};
    const SequenceRows s{0, rows, position, page_ids_.data(), nullptr};
    Step step;
    step.tokens = {tokens, static_cast<std::size_t>(rows)};
    step.sequences = {&s, 1};
    step.page_base = session_.page(0);
    step.page_bytes = session_.page_bytes();
    const double start = now();
    session_.kernel().run(step, NodeIo{in_, out_, scratch_->data()}, pool_);
    return now() - start;
  }
  [[nodiscard]] double now() const {
    if (options_.threads == 1) return thread_seconds();
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }

  Isa isa_;
  Options options_;
  std::int64_t heads_, kv_heads_;
  ThreadPool pool_;
  TestSession session_;
  std::vector<std::int64_t> page_ids_;
  std::vector<Words> inputs_;
  Words output_;
  std::unique_ptr<AlignedBytes> scratch_;
  std::vector<const void*> in_;
  std::vector<void*> out_;
};

int main_with(int argc, char** argv) {
  Options options;
  bool good = true;
  for (int i = 1; i < argc && good; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--f32") {
      options.f32 = true;
      continue;
    }
    const int value = i + 1 < argc ? std::atoi(argv[++i]) : 0;
    good = value > 0;
    if (flag == "--rounds") {
      options.rounds = value;
    } else if (flag == "--threads") {
      options.threads = value;
    } else if (flag == "--only") {
      options.only = value;
    } else {
      good = false;
    }
  }
  const Result<Isa> isa = choose_isa();
  if (!good || !isa.ok()) {
    std::fprintf(stderr, "%s\n",
                 isa.ok() ? "usage: attention_bench [--rounds N] [--f32] [--threads N] [--only GROUP]"
                          : isa.error().message.c_str());
    return 2;
  }
  constexpr std::pair<int, int> kHeads[] = {{8, 8}, {32, 8}, {8, 1}, {64, 8}, {16, 1}};
  const auto asked = [&](const std::pair<int, int>& heads) {
    return options.only == 0 || options.only == heads.first / heads.second;
  };
  if (std::ranges::none_of(kHeads, asked)) {
    std::fprintf(stderr, "attention_bench: --only %lld: no such group; there are\n",
                 static_cast<long long>(options.only));
    for (const auto& [heads, kv_heads] : kHeads) {
      std::fprintf(stderr, "  %d (%d heads on %d)\n", heads / kv_heads, heads, kv_heads);
    }
    return 2;
  }
  std::printf("%s, %s cache, %d threads, load average %.2f%s\n", std::string(isa_name(*isa)).c_str(),
              options.f32 ? "f32" : "bf16", options.threads, load_average(),
              machine_is_busy() ? ": BUSY, trust the ratios only" : "");
  for (const auto& heads : kHeads) {
    if (asked(heads)) AttentionBench(*isa, options, heads.first, heads.second).run();
  }
  return 0;
}

}  // namespace
}  // namespace firstlight::bench

int main(int argc, char** argv) { return firstlight::bench::main_with(argc, argv); }
