// Grouped-query attention against the machine's roofline, measured round-robin in the same run.
//
//   attention_bench [--rounds N]
//
// One thread, bf16 cache, heads of 128. Decode: one row over 32768 positions whose cache lies cold in memory,
// as a share of a pure read of the same bytes. Prefill: 512 rows behind 0 and behind 8192 positions, as a
// share of the f32 multiply-add peak; pairs above the diagonal are not counted.
#include <cstdlib>
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

class AttentionBench {
 public:
  AttentionBench(Isa isa, std::int64_t heads, std::int64_t kv_heads)
      : isa_(isa),
        heads_(heads),
        kv_heads_(kv_heads),
        pool_(1),
        session_(make_op(heads, kv_heads),
                 {.isa = isa, .f32 = false, .max_context = kPages * kPageTokens, .max_sequences = 1}),
        page_ids_(kPages) {
    Random random(1);
    inputs_ = {random.normals(kPrompt * heads * kDim), random.normals(kPrompt * kv_heads * kDim),
               random.normals(kPrompt * kv_heads * kDim)};
    output_.resize(inputs_[0].size());
    std::iota(page_ids_.begin(), page_ids_.end(), 0);
    for (const Words& w : inputs_) in_.push_back(w.data());
    out_.push_back(output_.data());
    scratch_ = std::make_unique<AlignedBytes>(session_.kernel().scratch_bytes());
    auto* cache = reinterpret_cast<std::uint16_t*>(session_.page(0));
    for (std::int64_t i = 0; i < kPages * session_.page_bytes() / 2; ++i) {
      cache[i] = f32_to_bf16(inputs_[1][static_cast<std::size_t>(i) % inputs_[1].size()]);
    }
  }

  void run(int rounds) {
    const std::int64_t bytes = kContext / kPageTokens * session_.page_bytes();
    std::vector<double> peak, read, decode, first, later;
    for (int r = 0; r < rounds; ++r) {
      peak.push_back(measure_peak(pool_, f32_chains(isa_)));
      read.push_back(measure_read(pool_, isa_, reinterpret_cast<const std::byte*>(session_.page(0)), bytes));
      decode.push_back(seconds(1, kContext - 1));
      first.push_back(seconds(kPrompt, 0));
      later.push_back(seconds(kPrompt, 8192));
    }
    const auto share = [&](double time, double context) {
      const double pairs = kPrompt * context + kPrompt * (kPrompt + 1) / 2.0;
      return 100 * 4 * kDim * static_cast<double>(heads_) * pairs / time / median(peak);
    };
    std::printf("%2lld heads of %lld: decode %6.2f ms, %5.1f GB/s, %5.1f%% of a pure read (%.1f GB/s)\n",
                static_cast<long long>(heads_), static_cast<long long>(kv_heads_), median(decode) * 1e3,
                static_cast<double>(bytes) / median(decode) / 1e9,
                100 * static_cast<double>(bytes) / median(decode) / median(read), median(read) / 1e9);
    std::printf("                prefill %4.1f%% of peak from the start, %4.1f%% behind 8192 (%.1f Gop/s)\n",
                share(median(first), 0), share(median(later), 8192), median(peak) / 1e9);
  }

 private:
  static TestOp make_op(std::int64_t heads, std::int64_t kv_heads) {
    TestOp op(attention_contract(), make_attention_cpu);
    op.value("q", heads * kDim).value("k", kv_heads * kDim).value("v", kv_heads * kDim);
    op.set("heads", heads).set("kv_heads", kv_heads).set("key_dim", kDim).set("value_dim", kDim);
    op.set("scale", 0.088);
    return op;
  }

  double seconds(std::int64_t rows, std::int64_t position) {
    const std::int32_t tokens[kPrompt] = {};
    const SequenceRows s{0, rows, position, page_ids_.data(), nullptr};
    Step step;
    step.tokens = {tokens, static_cast<std::size_t>(rows)};
    step.sequences = {&s, 1};
    step.page_base = session_.page(0);
    step.page_bytes = session_.page_bytes();
    const double start = thread_seconds();
    session_.kernel().run(step, NodeIo{in_, out_, scratch_->data()}, pool_);
    return thread_seconds() - start;
  }

  Isa isa_;
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
  int rounds = 15;
  if (argc == 3 && std::string_view(argv[1]) == "--rounds") rounds = std::atoi(argv[2]);
  if ((argc != 1 && argc != 3) || rounds < 1) {
    std::fprintf(stderr, "usage: attention_bench [--rounds N]\n");
    return 2;
  }
  const Result<Isa> isa = choose_isa();
  if (!isa.ok()) {
    std::fprintf(stderr, "%s\n", isa.error().message.c_str());
    return 2;
  }
  std::printf("%s, load average %.2f%s\n", std::string(isa_name(*isa)).c_str(), load_average(),
              machine_is_busy() ? ": BUSY, trust the ratios only" : "");
  for (const auto& [heads, kv_heads] : {std::pair{8, 8}, {32, 8}, {64, 8}, {16, 1}}) {
    AttentionBench(*isa, heads, kv_heads).run(rounds);
  }
  return 0;
}

}  // namespace
}  // namespace firstlight::bench

int main(int argc, char** argv) { return firstlight::bench::main_with(argc, argv); }
