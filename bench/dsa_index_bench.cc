// The search of keys for sparse attention against the machine's rate of byte dot products and of bf16
// multiply-adds, measured in the same run.
//
//   dsa_index_bench [--rounds N] [--context N] [--search NAME]
//
// One thread, 16 heads of 128 channels, 2048 keys chosen, bf16 cache, random keys and clustered ones.
// Prefill: 32 rows at the end of the context; decode: one row, two-stage with its default candidates, from
// any context on. "of peak" counts 2 * heads * channels operations for each visible key, whatever the search
// leaves out.
#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include "device/cpu/roofline.h"
#include "ops/dsa_index/kernels.h"
#include "ops/dsa_index/op.h"
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
constexpr std::int64_t kTop = 2048;
constexpr std::int64_t kPrompt = 32;  // rows of a prefill step
constexpr std::int64_t kFill = 512;   // rows of a step that fills the cache

/// Segments of about 400 tokens, each about one of 24 topics, or no order at all; queries aim at a key.
class Text {
 public:
  Text(bool clustered, std::int64_t context) : clustered_(clustered), context_(context), random_(1) {
    topics_ = random_.normals(24 * kDim);
  }
  /// Keys of the next rows; queries of the first kPrompt.
  void fill(std::int64_t rows, std::vector<Words>& in) {
    for (std::int64_t r = 0; r < rows; ++r) {
      if (random_.between(0, 399) == 0) topic_ = random_.between(0, 23);
      for (std::int64_t c = 0; c < kDim; ++c) {
        const double noise = random_.normal();
        const double center = topics_[static_cast<std::size_t>(topic_ * kDim + c)];
        in[1][static_cast<std::size_t>(r * kDim + c)] =
            static_cast<float>(clustered_ ? (center + 0.35 * noise) / 1.06 : noise);
      }
      if (r >= kPrompt) continue;
      const std::int64_t aim = random_.between(0, 23);
      for (std::int64_t h = 0; h < kHeads; ++h) {
        in[2][static_cast<std::size_t>(r * kHeads + h)] = static_cast<float>(random_.normal());
        for (std::int64_t c = 0; c < kDim; ++c) {
          const double common = clustered_ ? 0.3 * topics_[static_cast<std::size_t>(aim * kDim + c)] : 0;
          in[0][static_cast<std::size_t>((r * kHeads + h) * kDim + c)] =
              static_cast<float>(random_.normal() + common);
        }
      }
    }
  }
  [[nodiscard]] std::int64_t context() const { return context_; }

 private:
  bool clustered_;
  std::int64_t context_;
  Random random_;
  Words topics_;
  std::int64_t topic_ = 0;
};

class IndexBench {
 public:
  IndexBench(Isa isa, KeySearch search, bool clustered, std::int64_t context)
      : pool_(1),
        context_(context),
        text_(clustered, context),
        session_(make_op(), {.isa = isa,
                             .f32 = false,
                             .max_tokens = kFill,
                             .max_context = context,
                             .max_sequences = 1,
                             .run = {.key_search = search, .min_context = 0}}),
        pages_(static_cast<std::size_t>(context / kPageTokens)) {
    in_ = {Words(kFill * kHeads * kDim), Words(kFill * kDim), Words(kFill * kHeads)};
    out_.resize(kFill * kTop);
    forced_.resize(kFill * kTop);
    std::iota(pages_.begin(), pages_.end(), 0);
    scratch_ = std::make_unique<AlignedBytes>(session_.kernel().scratch_bytes());
    const std::int32_t* forced[] = {forced_.data()};
    for (std::int64_t p = 0; p < context; p += kFill) {
      text_.fill(kFill, in_);
      step(kFill, p, forced);
    }
  }
  /// The best of some runs, in seconds a row.
  double row_seconds(std::int64_t rows, int rounds) {
    double best = HUGE_VAL;
    for (int r = 0; r < rounds; ++r) {
      const double start = thread_seconds();
      step(rows, context_ - rows, {});
      best = std::min(best, (thread_seconds() - start) / static_cast<double>(rows));
    }
    return best;
  }

 private:
  static TestOp make_op() {
    TestOp op(dsa_index_contract(), make_dsa_index_cpu);
    op.value("q", kHeads * kDim).value("k", kDim).value("w", kHeads);
    op.set("heads", kHeads).set("dim", kDim).set("topk", kTop);
    return op;
  }
  void step(std::int64_t rows, std::int64_t position, std::span<const std::int32_t* const> forced) {
    const std::vector<std::int32_t> tokens(static_cast<std::size_t>(rows));
    const SequenceRows s{0, rows, position, pages_.data(), nullptr};
    Step step;
    step.tokens = tokens;
    step.sequences = {&s, 1};
    step.page_base = session_.page(0);
    step.page_bytes = session_.page_bytes();
    step.forced = forced;
    const void* in[] = {in_[0].data(), in_[1].data(), in_[2].data()};
    void* out[] = {out_.data()};
    session_.kernel().run(step, NodeIo{in, out, scratch_->data()}, pool_);
  }

  ThreadPool pool_;
  std::int64_t context_;
  Text text_;
  TestSession session_;
  std::vector<std::int64_t> pages_;
  std::vector<Words> in_;
  Words out_;
  std::vector<std::int32_t> forced_;
  std::unique_ptr<AlignedBytes> scratch_;
};

/// The two inner loops alone, on keys that are near: shares of the peaks of bytes and of bf16.
void print_loops(Isa isa, int rounds, double bytes, double pairs) {
  constexpr std::int64_t kPages = 16;
  constexpr std::int64_t kTileBytes = kPageTokens * kDim;
  const DsaIndexKernels& kernels = FL_PICK(isa, kDsaIndexKernels);
  const IndexOperands& operands = kernels.bf16;
  Random random(2);
  const Words q = random.normals(kHeads * kDim);
  const Words w = random.normals(kHeads);
  const Words keys = random.normals(kPages * kTileBytes);
  Words cells(kHeads * kDim), weights(kHeads), byte_weights(kHeads), scaled(kHeads * kDim),
      residuals(kHeads * kDim), transposed(kHeads * kDim), products(2 * kHeads * kHeads), half(kDim);
  std::vector<std::int8_t> heads(kHeads * kDim), linear(kDim);
  std::vector<std::int32_t> start(kHeads);
  IndexQuery query{
      cells.data(), weights.data(), heads.data(), start.data(), byte_weights.data(), linear.data(), 0, 0,
      {},           false};
  operands.prepare_query(q.data(), w.data(), 1.0F, kHeads, kDim,
                         {scaled.data(), residuals.data(), transposed.data(), products.data(), half.data()},
                         query);
  const AlignedBytes tiles(kPages * kTileBytes);
  const AlignedBytes stored(kPages * kTileBytes * 2);
  std::vector<const std::uint8_t*> rows;
  Words scale(kPageTokens), residual(kPageTokens), norm(kPageTokens);
  for (std::int64_t k = 0; k < kPages * kPageTokens; ++k) {
    const std::int64_t lane = k % kPageTokens;
    std::uint8_t* key = stored.data() + k * kDim * 2;
    for (std::int64_t c = 0; c < kDim; ++c) {
      const std::uint16_t x = f32_to_bf16(keys[static_cast<std::size_t>(k * kDim + c)]);
      std::memcpy(key + c * 2, &x, sizeof(x));
    }
    rows.push_back(key);
    const KeyScale s =
        kernels.quantise_key(keys.data() + k * kDim, kDim,
                             tiles.data() + k / kPageTokens * kTileBytes + lane * 4, kPageTokens * 4);
    scale[static_cast<std::size_t>(lane)] = s.scale;
    residual[static_cast<std::size_t>(lane)] = s.residual;
    norm[static_cast<std::size_t>(lane)] = s.norm;
  }
  std::int32_t lower[kPageTokens + kScoreSlack];
  std::int32_t upper[kPageTokens];
  double scan = HUGE_VAL;
  double score = HUGE_VAL;
  for (int r = 0; r < 4 * rounds; ++r) {
    double begin = thread_seconds();
    for (std::int64_t p = 0; p < kPages; ++p) {
      kernels.scan(query, kHeads, kDim,
                   {tiles.data() + p * kTileBytes, scale.data(), residual.data(), norm.data()}, kPageTokens,
                   {}, lower, upper);
    }
    scan = std::min(scan, thread_seconds() - begin);
    begin = thread_seconds();
    for (std::int64_t p = 0; p < kPages; ++p) {
      operands.score(query, kHeads, kDim, rows.data() + p * kPageTokens, kPageTokens, kPageTokens, lower);
    }
    score = std::min(score, thread_seconds() - begin);
  }
  constexpr double kOperations = 2.0 * kHeads * kDim * kPages * kPageTokens;
  std::printf(
      "keys that are near: byte scores with bounds %.1f%% of the bytes' peak, exact scores %.1f%% of "
      "bf16's\n",
      100 * kOperations / scan / bytes, 100 * kOperations / score / pairs);
}

constexpr std::int64_t kContexts[] = {8192, 32768, 131072};
constexpr std::pair<KeySearch, const char*> kSearches[] = {
    {KeySearch::kFull, "full"}, {KeySearch::kCertified, "certified"}, {KeySearch::kTwoStage, "two-stage"}};

int main_with(int argc, char** argv) {
  int rounds = 7;
  std::int64_t only = 0;
  std::string_view only_search;
  bool good = argc % 2 == 1;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    if (flag == "--rounds") {
      rounds = std::atoi(argv[i + 1]);
    } else if (flag == "--search") {
      only_search = argv[i + 1];
      good &= std::ranges::any_of(kSearches, [&](const auto& s) { return only_search == s.second; });
    } else if (flag == "--context") {
      only = std::atoi(argv[i + 1]);
      good &= std::ranges::find(kContexts, only) != std::end(kContexts);
    } else {
      good = false;
    }
  }
  if (!good || rounds < 1) {
    std::fprintf(stderr,
                 "usage: dsa_index_bench [--rounds N] [--context 8192|32768|131072] [--search "
                 "full|certified|two-stage]\n");
    return 2;
  }
  const Result<Isa> isa = choose_isa();
  if (!isa.ok()) {
    std::fprintf(stderr, "%s\n", isa.error().message.c_str());
    return 2;
  }
  ThreadPool pool(1);
  double bytes = 0;
  double pairs = 0;
  for (int r = 0; r < rounds; ++r) {
    bytes = std::max(bytes, measure_peak(pool, int8_chains(*isa)));
    pairs = std::max(pairs, measure_peak(pool, bf16_chains(*isa)));
  }
  std::printf("%s, load average %.2f%s; bytes %.0f Gop/s, bf16 %.0f Gop/s\n",
              std::string(isa_name(*isa)).c_str(), load_average(),
              machine_is_busy() ? ": BUSY, trust the ratios only" : "", bytes / 1e9, pairs / 1e9);
  print_loops(*isa, rounds, bytes, pairs);
  std::printf("keys       context  search      prefill ms/row  of peak   decode ms  of peak\n");
  for (const bool clustered : {false, true}) {
    for (const std::int64_t context : kContexts) {
      if (only != 0 && only != context) continue;
      for (const auto& [search, name] : kSearches) {
        if (!only_search.empty() && only_search != name) continue;
        IndexBench bench(*isa, search, clustered, context);
        const double prefill = bench.row_seconds(kPrompt, rounds);
        const double decode = bench.row_seconds(1, 3 * rounds);
        const double peak = search == KeySearch::kFull ? pairs : bytes;
        const double operations = 2.0 * kHeads * kDim * static_cast<double>(context);
        std::printf("%-9s %8lld  %-10s  %14.4f  %6.1f%%  %10.4f  %6.1f%%\n",
                    clustered ? "clustered" : "random", static_cast<long long>(context), name, prefill * 1e3,
                    100 * operations / prefill / peak, decode * 1e3, 100 * operations / decode / peak);
        std::fflush(stdout);
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace firstlight::bench

int main(int argc, char** argv) { return firstlight::bench::main_with(argc, argv); }
