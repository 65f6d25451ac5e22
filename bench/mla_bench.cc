// Latent attention against the machine's roofline, measured round-robin in the same run.
//
//   mla_bench [--rounds N] [--f32] [--threads N] [--heads N] [--only TEXT]
//
// Heads of 128 + 64 channels over latents of 512. Each line is a share of the peak of the best multiply-add
// for the cache's type (bf16: vdpbf16ps with AVX-512, else FMA): products of queries with keys and of weights
// with values, those above the diagonal not counted, and the products with kv_b around them (for the expanded
// form: the expansion too). "attention alone" leaves kv_b out of both.
#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>

#include "device/cpu/roofline.h"
#include "ops/mla/op.h"
#include "ops/op_testing.h"

namespace firstlight::bench {
namespace {

using firstlight::testing::AlignedBytes;
using firstlight::testing::Random;
using firstlight::testing::TestOp;
using firstlight::testing::TestSession;
using firstlight::testing::Words;

constexpr std::int64_t kNope = 128;
constexpr std::int64_t kRope = 64;
constexpr std::int64_t kValue = 128;
constexpr std::int64_t kLatent = 512;
constexpr std::int64_t kChunk = 2048;  // rows of the largest step
constexpr std::int64_t kDepth = 8192;
constexpr std::int64_t kChosen = 2048;

struct Options {
  int rounds = 5;
  bool f32 = false;
  int threads = 1;
  std::int64_t heads = 16;
  std::string only;  // lines whose name holds this
};

class MlaBench {
 public:
  MlaBench(Isa isa, const Options& options, bool sparse, bool expanded)
      : isa_(isa),
        options_(options),
        sparse_(sparse),
        expanded_(expanded),
        pool_(options.threads),
        session_(make_op(options.heads, sparse), {.isa = isa,
                                                  .f32 = options.f32,
                                                  .threads = options.threads,
                                                  .max_tokens = kChunk,
                                                  .max_context = kDepth + kChunk,
                                                  .max_sequences = 1,
                                                  .run = {.expanded_prefill = expanded}}),
        pages_((kDepth + kChunk) / kPageTokens) {
    Random random(1);
    inputs_ = {random.normals(kChunk * options.heads * (kNope + kRope)), random.normals(kChunk * kLatent),
               random.normals(kChunk * kRope)};
    std::iota(pages_.begin(), pages_.end(), 0);
    for (const Words& w : inputs_) in_.push_back(w.data());
    if (sparse) {
      // Every row takes each fourth position or so, ascending.
      for (std::int64_t r = 0; r < kChunk; ++r) {
        for (std::int64_t i = 0; i < kChosen; ++i) {
          const std::int64_t gap = kDepth / kChosen;
          chosen_.push_back(static_cast<std::int32_t>(i * gap + random.between(0, gap - 1)));
        }
      }
      in_.push_back(chosen_.data());
    }
    output_.resize(static_cast<std::size_t>(kChunk * options.heads * kValue));
    out_.push_back(output_.data());
    scratch_ = std::make_unique<AlignedBytes>(session_.kernel().scratch_bytes());
    for (std::int64_t p = 0; p < kDepth; p += kChunk) seconds(kChunk, p, true);  // fills the cache
  }

  void line(const char* name, std::int64_t rows, std::int64_t position) {
    std::vector<double> time;
    std::vector<double> peak;
    for (int i = 0; i < options_.rounds; ++i) {
      peak.push_back(measure_peak(pool_, options_.f32 ? f32_chains(isa_) : bf16_chains(isa_)));
      time.push_back(seconds(rows, position, !expanded_));
    }
    const double best = *std::min_element(time.begin(), time.end());
    const double roof = *std::max_element(peak.begin(), peak.end());
    const auto heads = static_cast<double>(options_.heads);
    const auto n = static_cast<double>(rows);
    const auto depth = static_cast<double>(position);
    const double pairs = sparse_ ? n * kChosen : n * depth + n * (n + 1) / 2;
    const double pair = 2 * heads * (expanded_ ? kNope + kRope + kValue : 2 * kLatent + kRope);
    const double project = 2 * heads * kLatent * (kNope + kValue) * (expanded_ ? depth + n : n);
    std::printf("%-34s %9.3f ms  %7.1f us a row  %5.1f%% of peak, attention alone %5.1f%% or more\n", name,
                best * 1e3, best * 1e6 / n, 100 * (pair * pairs + project) / best / roof,
                100 * pair * pairs / best / roof);
  }

 private:
  static TestOp make_op(std::int64_t heads, bool sparse) {
    Random random(2);
    TestOp op(mla_contract(), make_mla_cpu);
    op.value("q", heads * (kNope + kRope)).value("c", kLatent).value("k_pe", kRope);
    op.weight("kv_b", {heads * (kNope + kValue), kLatent},
              random.normals(heads * (kNope + kValue) * kLatent, 0.04), true);
    if (sparse) op.value("chosen", ValueType{DType::kI32, Rows::kTokens, {kChosen}});
    op.set("heads", heads).set("nope_dim", kNope).set("rope_dim", kRope).set("v_dim", kValue);
    return op.set("scale", 0.072);
  }

  /// Wall clock of one step where several threads work, CPU time of one.
  double seconds(std::int64_t rows, std::int64_t position, bool generated) {
    const std::vector<std::int32_t> tokens(static_cast<std::size_t>(rows));
    const SequenceRows s{0, rows, position, pages_.data(), nullptr, generated};
    Step step;
    step.tokens = tokens;
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
  bool sparse_, expanded_;
  ThreadPool pool_;
  TestSession session_;
  std::vector<std::int64_t> pages_;
  std::vector<Words> inputs_;
  std::vector<std::int32_t> chosen_;
  Words output_;
  std::unique_ptr<AlignedBytes> scratch_;
  std::vector<const void*> in_;
  std::vector<void*> out_;
};

struct Line {
  const char* name;
  std::int64_t rows, position;
  bool sparse = false, expanded = false;
};

constexpr Line kLines[] = {
    {"decode at 8192", 1, kDepth},
    {"decode at 1024", 1, 1024},
    {"prefill 512 from the start", 512, 0},
    {"prefill 512 at 8192", 512, kDepth},
    {"decode, 2048 of 8192 rows chosen", 1, kDepth, true},
    {"prefill 64, 2048 chosen a row", 64, kDepth, true},
    {"expanded prefill 2048 at the start", kChunk, 0, false, true},
    {"expanded prefill 2048 at 8192", kChunk, kDepth, false, true},
};

bool asked(const Line& line, const Options& options) {
  return std::string_view(line.name).find(options.only) != std::string_view::npos;
}

int main_with(int argc, char** argv) {
  Options options;
  bool good = true;
  for (int i = 1; i < argc && good; ++i) {
    const std::string_view flag = argv[i];
    const int value = i + 1 < argc ? std::atoi(argv[i + 1]) : 0;
    if (flag == "--f32") {
      options.f32 = true;
      continue;
    }
    good = value > 0 || flag == "--only";
    if (flag == "--rounds") {
      options.rounds = value;
    } else if (flag == "--threads") {
      options.threads = value;
    } else if (flag == "--heads") {
      options.heads = value;
    } else if (flag == "--only" && i + 1 < argc) {
      options.only = argv[i + 1];
    } else {
      good = false;
    }
    ++i;
  }
  const Result<Isa> isa = choose_isa();
  if (!good || !isa.ok()) {
    std::fprintf(stderr, "%s\n",
                 isa.ok() ? "usage: mla_bench [--rounds N] [--f32] [--threads N] [--heads N] [--only TEXT]"
                          : isa.error().message.c_str());
    return 2;
  }
  if (std::ranges::none_of(kLines, [&](const Line& line) { return asked(line, options); })) {
    std::fprintf(stderr, "mla_bench: --only %s: no line's name holds this; the lines are:\n",
                 options.only.c_str());
    for (const Line& line : kLines) std::fprintf(stderr, "  %s\n", line.name);
    return 2;
  }
  std::printf("%s, %lld heads, %s cache, %d threads, load average %.2f%s\n",
              std::string(isa_name(*isa)).c_str(), static_cast<long long>(options.heads),
              options.f32 ? "f32" : "bf16", options.threads, load_average(),
              machine_is_busy() ? ": BUSY, trust the ratios only" : "");
  for (std::size_t i = 0; i < std::size(kLines);) {
    const Line& first = kLines[i];
    std::optional<MlaBench> bench;  // of all lines of its form; filling its cache takes a while
    for (; i < std::size(kLines) && kLines[i].sparse == first.sparse && kLines[i].expanded == first.expanded;
         ++i) {
      if (!asked(kLines[i], options)) continue;
      if (!bench) bench.emplace(*isa, options, first.sparse, first.expanded);
      bench->line(kLines[i].name, kLines[i].rows, kLines[i].position);
    }
  }
  return 0;
}

}  // namespace
}  // namespace firstlight::bench

int main(int argc, char** argv) { return firstlight::bench::main_with(argc, argv); }
