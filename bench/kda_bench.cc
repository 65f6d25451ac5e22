// KDA prefill and decode against the machine's roofline, measured round-robin in the same run.
//
//   kda_bench [--rounds N]
//
// One thread; 16 heads of 128 x 128. Decode is timed with states that rotate through 64 MiB (cold) and with
// one sequence (in cache); each number is an average over the 16 positions of a chunk.
#include <cstdlib>
#include <string>
#include <string_view>

#include "device/cpu/roofline.h"
#include "ops/kda/op.h"
#include "ops/op_testing.h"

namespace firstlight::bench {
namespace {

using firstlight::testing::AlignedBytes;
using firstlight::testing::Random;
using firstlight::testing::TestOp;
using firstlight::testing::TestSession;
using firstlight::testing::Words;

constexpr std::int64_t kHeads = 16;
constexpr std::int64_t kDim = 128;
constexpr std::int64_t kPrompt = 128;  // rows of a prefill step
constexpr std::int64_t kStates = std::int64_t{64} << 20;
constexpr std::int64_t kStateBytes = kHeads * kDim * kDim * 4;  // S_0 of all heads

class KdaBench {
 public:
  KdaBench(Isa isa, bool bounded, bool head_decay)
      : isa_(isa), pool_(1), session_(make_op(bounded, head_decay), {.isa = isa}) {
    Random random(1);
    for (int i = 0; i < 3; ++i) inputs_.push_back(random.normals(kPrompt * kHeads * kDim));
    inputs_.push_back(random.normals(kPrompt * kHeads * (head_decay ? 1 : kDim)));
    inputs_.push_back(random.normals(kPrompt * kHeads));
    output_.resize(inputs_[0].size());
    sequences_ = kStates / session_.state_bytes() + 1;
    states_ = std::make_unique<AlignedBytes>(sequences_ * session_.state_bytes());
    scratch_ = std::make_unique<AlignedBytes>(session_.kernel().scratch_bytes());
    for (const Words& w : inputs_) in_.push_back(w.data());
    out_.push_back(output_.data());
  }

  void run(int rounds) {
    const double fma = 3.0 * kDim * kDim + 16.0 * 2 * kDim;  // of a token and head
    std::vector<double> peak, read, prefill, cold, hot;
    for (int r = 0; r < rounds; ++r) {
      peak.push_back(measure_peak(pool_, f32_chains(isa_)));
      read.push_back(measure_read(pool_, reinterpret_cast<const std::byte*>(states_->data()), kStates));
      prefill.push_back(seconds(0, kPrompt, 64));
      double all = 0;
      for (std::int64_t i = 0; i < 16; ++i) {
        for (std::int64_t s = 0; s < sequences_; ++s) all += seconds(s, 1, 64 + i);
      }
      cold.push_back(all / static_cast<double>(16 * sequences_));
      all = 0;
      for (std::int64_t i = 0; i < 16 * 20; ++i) all += seconds(0, 1, 64 + i);
      hot.push_back(all / (16 * 20));
    }
    const double per_token = median(prefill) / kPrompt / kHeads;
    std::printf("%s: peak %.1f Gop/s, read %.1f GB/s\n", std::string(isa_name(isa_)).c_str(),
                median(peak) / 1e9, median(read) / 1e9);
    std::printf("  prefill      %6.2f us a token and head, %4.1f%% of peak\n", per_token * 1e6,
                100 * 2 * fma / per_token / median(peak));
    std::printf("  decode cold  %6.2f us a head, S_0 at %5.1f GB/s, %4.1f%% of a pure read\n",
                median(cold) / kHeads * 1e6, kStateBytes / median(cold) / 1e9,
                100 * kStateBytes / median(cold) / median(read));
    std::printf("  decode hot   %6.2f us a head\n", median(hot) / kHeads * 1e6);
  }

 private:
  static TestOp make_op(bool bounded, bool head_decay) {
    Random random(2);
    const std::int64_t decays = kHeads * (head_decay ? 1 : kDim);
    TestOp op(kda_contract(), make_kda_cpu);
    op.value("q", kHeads * kDim).value("k", kHeads * kDim).value("v", kHeads * kDim);
    op.value("f", decays).value("beta", kHeads);
    op.weight("A_log", {kHeads}, random.normals(kHeads));
    op.weight("dt_bias", {decays}, random.normals(decays));
    op.set("heads", kHeads).set("key_dim", kDim).set("value_dim", kDim);
    op.set("gate", std::string(bounded ? "bounded" : "softplus")).set("lower_bound", bounded ? -5.0 : 0.0);
    op.set("decay", std::string(head_decay ? "head" : "channel"));
    return op;
  }

  double seconds(std::int64_t sequence, std::int64_t rows, std::int64_t position) {
    const std::int32_t tokens[kPrompt] = {};
    const SequenceRows s{0, rows, position, nullptr, states_->data() + sequence * session_.state_bytes()};
    Step step;
    step.tokens = {tokens, static_cast<std::size_t>(rows)};
    step.sequences = {&s, 1};
    const double start = thread_seconds();
    session_.kernel().run(step, NodeIo{in_, out_, scratch_->data()}, pool_);
    return thread_seconds() - start;
  }

  Isa isa_;
  ThreadPool pool_;
  TestSession session_;
  std::vector<Words> inputs_;
  Words output_;
  std::int64_t sequences_ = 0;
  std::unique_ptr<AlignedBytes> states_;
  std::unique_ptr<AlignedBytes> scratch_;
  std::vector<const void*> in_;
  std::vector<void*> out_;
};

int main_with(int argc, char** argv) {
  int rounds = 15;
  if (argc == 3) rounds = std::string_view(argv[1]) == "--rounds" ? std::atoi(argv[2]) : 0;
  if ((argc != 1 && argc != 3) || rounds < 1) {
    std::fprintf(stderr, "usage: kda_bench [--rounds N]\n");
    return 2;
  }
  const Result<Isa> isa = choose_isa();
  if (!isa.ok()) {
    std::fprintf(stderr, "%s\n", isa.error().message.c_str());
    return 2;
  }
  std::printf("load average %.2f%s\n", load_average(),
              machine_is_busy() ? ": BUSY, trust the ratios only" : "");
  const struct {
    const char* name;
    bool bounded;
    bool head_decay;
  } kinds[] = {{"bounded gate", true, false},
               {"softplus gate", false, false},
               {"softplus gate, one decay a head", false, true}};
  for (const auto& kind : kinds) {
    std::printf("%s, ", kind.name);
    KdaBench(*isa, kind.bounded, kind.head_decay).run(rounds);
  }
  return 0;
}

}  // namespace
}  // namespace firstlight::bench

int main(int argc, char** argv) { return firstlight::bench::main_with(argc, argv); }
