// GEMM and GEMV against the machine's roofline, measured round-robin in the same run.
//
//   gemm_bench [--threads N] [--rounds N] [--max-m M] [--json FILE] [--check]
//
// Weights rotate over copies of at least 128 MiB, so small M meets cold weights as a decode step does.
// --check fails when a ratio is below its gate, unless the load average is above the number of cores.
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <string_view>

#include "device/cpu/gemm.h"
#include "device/cpu/roofline.h"

namespace firstlight::bench {
namespace {

constexpr std::int64_t kRotated = std::int64_t{128} << 20;
constexpr std::int64_t kReadBytes = std::int64_t{512} << 20;

struct Options {
  int threads = 1;
  int rounds = 15;
  std::int64_t max_m = 512;
  std::string json;
  bool check = false;
};

struct Weights {
  const char* name;  // as printed
  Arithmetic arithmetic;
  Packing packing;
  std::int64_t n, k;
  std::vector<PackedMatrix> copies;
  std::size_t next = 0;

  const PackedMatrix& rotate() { return copies[next++ % copies.size()]; }
  [[nodiscard]] std::int64_t bytes() const { return copies[0].bytes(); }
};

Weights make_weights(const char* name, Arithmetic arithmetic, Packing packing, std::int64_t n,
                     std::int64_t k) {
  Weights w{name, arithmetic, packing, n, k, {}, 0};
  std::mt19937 random(1);
  std::vector<float> row(static_cast<std::size_t>(k));
  for (float& v : row) v = static_cast<float>(random() % 255) / 128.0F - 1.0F;
  const RowSource source{n, [&](std::int64_t, float* out) { std::memcpy(out, row.data(), row.size() * 4); }};
  do {
    w.copies.push_back(std::move(*pack(std::span(&source, 1), k, packing)));
  } while (static_cast<std::int64_t>(w.copies.size()) * w.bytes() < kRotated);
  return w;
}

/// One line of the table: samples of a rate and of its ratio to the roof of the same round.
struct Line {
  Weights* weights;
  std::int64_t m;
  std::vector<double> rates, shares;
};

struct Aligned {
  explicit Aligned(std::size_t bytes)
      : data(static_cast<std::byte*>(std::aligned_alloc(std::size_t{2} << 20, bytes))), size(bytes) {
    madvise(data, bytes, MADV_HUGEPAGE);
    std::memset(data, 1, bytes);
  }
  ~Aligned() { std::free(data); }
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
  std::byte* data;
  std::size_t size;
};

class Bench {
 public:
  Bench(const Options& options, Isa isa)
      : options_(options), isa_(isa), pool_(options.threads), read_(static_cast<std::size_t>(kReadBytes)) {
    for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{2048, 2048}, {4096, 1024}}) {
      weights_.push_back(make_weights("bf16", Arithmetic::kBF16, Packing::kBF16, n, k));
      weights_.push_back(make_weights("f32", Arithmetic::kF32, Packing::kF32, n, k));
      for (const Packing packing : {Packing::kInt8, Packing::kInt4, Packing::kMxfp4}) {
        weights_.push_back(make_weights(packing_name(packing).data(), Arithmetic::kBF16, packing, n, k));
      }
    }
    std::size_t scratch = 0;
    for (Weights& w : weights_) {
      for (const std::int64_t m : {1, 8, 32, 128, 512}) {
        if (m > options.max_m) continue;
        lines_.push_back({&w, m, {}, {}});
        scratch = std::max(scratch, gemm_scratch_bytes(m, w.k));
        x_.resize(std::max(x_.size(), static_cast<std::size_t>(m * w.k)), 0.5F);
        y_.resize(std::max(y_.size(), static_cast<std::size_t>(m * w.n)));
      }
    }
    scratch_ = std::make_unique<Aligned>((scratch + (std::size_t{2} << 20)) >> 21 << 21);
  }

  void run() {
    for (int round = 0; round < options_.rounds; ++round) {
      f32_peak_.push_back(measure_peak(pool_, f32_chains(isa_)));
      bf16_peak_.push_back(measure_peak(pool_, bf16_chains(isa_)));
      int8_peak_.push_back(measure_peak(pool_, int8_chains(isa_)));
      read_rate_.push_back(measure_read(pool_, read_.data, kReadBytes));
      for (Line& line : lines_) {
        if (line.m == 1) {
          sample_gemv(line);
        } else {
          sample_gemm(line);
        }
      }
    }
  }

  void print() const {
    std::printf("instruction set %s, %d thread(s), %d rounds, load average %.2f on %u cores%s\n",
                std::string(isa_name(isa_)).c_str(), options_.threads, options_.rounds, load_average(),
                std::thread::hardware_concurrency(),
                machine_is_busy() ? ": BUSY, trust the ratios only" : "");
    std::printf("peak f32 %.1f, bf16 %.1f, int8 %.1f Gop/s; pure read of %lld MiB %.1f GB/s\n",
                median(f32_peak_) / 1e9, median(bf16_peak_) / 1e9, median(int8_peak_) / 1e9,
                static_cast<long long>(kReadBytes >> 20), median(read_rate_) / 1e9);
    std::printf("%-5s %5s %5s %5s %10s %10s %7s\n", "type", "N", "K", "M", "Gop/s", "GB/s", "share");
    for (const Line& l : lines_) {
      const double rate = median(l.rates);
      const double work = 2.0 * static_cast<double>(l.m * l.weights->n * l.weights->k);
      const double bytes = static_cast<double>(l.weights->bytes());
      std::printf("%-5s %5lld %5lld %5lld %10.1f %10.1f %6.1f%% of %s\n", l.weights->name,
                  static_cast<long long>(l.weights->n), static_cast<long long>(l.weights->k),
                  static_cast<long long>(l.m), rate * work / 1e9, rate * bytes / 1e9, 100 * median(l.shares),
                  l.m == 1 ? "pure read of the same bytes" : "peak");
    }
  }

  [[nodiscard]] bool write_json() const {
    std::FILE* f = std::fopen(options_.json.c_str(), "w");
    if (f == nullptr) return false;
    std::fprintf(f,
                 "{\"isa\": \"%s\", \"threads\": %d, \"rounds\": %d, \"load_average\": %.2f, \"busy\": %s,\n",
                 std::string(isa_name(isa_)).c_str(), options_.threads, options_.rounds, load_average(),
                 machine_is_busy() ? "true" : "false");
    std::fprintf(f,
                 " \"peak_f32_ops\": %.4g, \"peak_bf16_ops\": %.4g, \"peak_int8_ops\": %.4g, "
                 "\"read_bytes_per_second\": %.4g,\n",
                 median(f32_peak_), median(bf16_peak_), median(int8_peak_), median(read_rate_));
    std::fprintf(f, " \"results\": [");
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      const Line& l = lines_[i];
      std::fprintf(f,
                   "%s\n  {\"type\": \"%s\", \"n\": %lld, \"k\": %lld, \"m\": %lld, \"per_second\": %.5g, "
                   "\"share\": %.4f}",
                   i == 0 ? "" : ",", l.weights->name, static_cast<long long>(l.weights->n),
                   static_cast<long long>(l.weights->k), static_cast<long long>(l.m), median(l.rates),
                   median(l.shares));
    }
    std::fprintf(f, "\n ]}\n");
    return std::fclose(f) == 0;
  }

  /// Codes of 4 bits are unpacked, and their sums scaled for every 32 values; a widening AVX2 kernel spends
  /// issue slots on the widening; the plain kernel is for checking only.
  [[nodiscard]] double gate_of(Packing packing) const {
    if (isa_ == Isa::kGeneric) return 0;
    const bool nibbles = packing == Packing::kInt4 || packing == Packing::kMxfp4;
    if (isa_ == Isa::kAvx2) return 0.65;
    return !nibbles ? 0.85 : 0.65;
  }

  /// The gates: what a change may not fall below.
  [[nodiscard]] bool holds() const {
    bool good = true;
    for (const Line& l : lines_) {
      if (l.m != 1 && l.m < 128) continue;
      const double gate = gate_of(l.weights->packing);
      if (median(l.shares) >= gate) continue;
      std::printf("BELOW THE GATE: %s N %lld K %lld M %lld: %.3f < %.2f\n", l.weights->name,
                  static_cast<long long>(l.weights->n), static_cast<long long>(l.weights->k),
                  static_cast<long long>(l.m), median(l.shares), gate);
      good = false;
    }
    return good;
  }

 private:
  GemmArgs args(const PackedMatrix& w, const Line& line) {
    return {.x = x_.data(),
            .ldx = line.weights->k,
            .m = line.m,
            .w = &w,
            .y = y_.data(),
            .ldy = line.weights->n,
            .arithmetic = line.weights->arithmetic,
            .scratch = scratch_->data};
  }

  /// The same steps as gemm(), timed on each thread by itself.
  double seconds(const PackedMatrix& w, const Line& line) {
    const CpuKernels& k = kernels(isa_);
    const GemmArgs a = args(w, line);
    const std::int64_t tiles = gemm_tiles(line.m);
    const double prepare = slowest_seconds(pool_, [&](int t) {
      const Range share = static_range(tiles, t, pool_.threads());
      prepare_x(k, a, share.begin, share.end);
    });
    return prepare + slowest_seconds(pool_, [&](int t) {
             const Range share = static_range(w.panels(), t, pool_.threads());
             gemm_panels(k, a, share.begin, share.end);
           });
  }

  [[nodiscard]] double peak_for(Packing packing) {
    return measure_peak(pool_, packing == Packing::kF32    ? f32_chains(isa_)
                               : packing == Packing::kBF16 ? bf16_chains(isa_)
                                                           : int8_chains(isa_));
  }

  /// Each product against the peak just before and after it: neighbours of the machine come and go.
  void sample_gemm(Line& line) {
    const std::int64_t repeats = std::max<std::int64_t>(1, 256 / line.m);
    const double work = 2.0 * static_cast<double>(line.m * line.weights->n * line.weights->k);
    double total = 0;
    double at_peak = 0;
    double before = peak_for(line.weights->packing);
    for (std::int64_t i = 0; i < repeats; ++i) {
      total += seconds(line.weights->rotate(), line);
      const double after = peak_for(line.weights->packing);
      at_peak += 2 * work / (before + after);
      before = after;
    }
    line.rates.push_back(static_cast<double>(repeats) / total);
    line.shares.push_back(at_peak / total);
  }

  /// All copies once, in turns with a pure read of the copy that was met longest ago.
  void sample_gemv(Line& line) {
    const std::vector<PackedMatrix>& copies = line.weights->copies;
    double gemv = 0;
    double read = 0;
    for (std::size_t i = 0; i < copies.size(); ++i) {
      gemv += seconds(copies[i], line);
      const PackedMatrix& far = copies[(i + copies.size() / 2) % copies.size()];
      read += static_cast<double>(far.bytes()) / measure_read(pool_, far.panel(0), far.bytes());
    }
    line.rates.push_back(static_cast<double>(copies.size()) / gemv);
    line.shares.push_back(read / gemv);
  }

  Options options_;
  Isa isa_;
  ThreadPool pool_;
  Aligned read_;
  std::vector<Weights> weights_;
  std::vector<Line> lines_;
  std::vector<float> x_, y_;
  std::unique_ptr<Aligned> scratch_;
  std::vector<double> f32_peak_, bf16_peak_, int8_peak_, read_rate_;
};

int usage() {
  std::fprintf(stderr, "usage: gemm_bench [--threads N] [--rounds N] [--max-m M] [--json FILE] [--check]\n");
  return 2;
}

int main_with(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string_view a = argv[i];
    if (a == "--check") {
      o.check = true;
      continue;
    }
    if (i + 1 == argc) return usage();
    const char* value = argv[++i];
    if (a == "--json") {
      o.json = value;
    } else if (a == "--threads") {
      o.threads = std::atoi(value);
    } else if (a == "--rounds") {
      o.rounds = std::atoi(value);
    } else if (a == "--max-m") {
      o.max_m = std::atoi(value);
    } else {
      return usage();
    }
  }
  if (o.threads < 1 || o.rounds < 1 || o.max_m < 1) return usage();
  const Result<Isa> isa = choose_isa();
  if (!isa.ok()) {
    std::fprintf(stderr, "%s\n", isa.error().message.c_str());
    return 2;
  }
  Bench bench(o, *isa);
  bench.run();
  bench.print();
  if (!o.json.empty() && !bench.write_json()) {
    std::fprintf(stderr, "gemm_bench: cannot write %s\n", o.json.c_str());
    return 2;
  }
  if (!o.check) return 0;
  if (machine_is_busy()) {
    std::printf("not checked: the load average is above the number of cores\n");
    return 0;
  }
  return bench.holds() ? 0 : 1;
}

}  // namespace
}  // namespace firstlight::bench

int main(int argc, char** argv) { return firstlight::bench::main_with(argc, argv); }
