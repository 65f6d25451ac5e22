#include <algorithm>
#include <utility>
#include <vector>

#include "ops/linear/op.h"
#include "ops/linear/pack_weight.h"

namespace firstlight {
namespace {

/// Rows up to which every thread prepares X for itself: cheaper than a second barrier.
constexpr std::int64_t kOwnRows = kGemmTileRows;

class Linear final : public Kernel {
 public:
  Linear(const KernelContext& context, std::vector<PackedMatrix> weights, Arithmetic arithmetic)
      : kernels_(kernels(context.isa)),
        weights_(std::move(weights)),
        arithmetic_(arithmetic),
        rows_(context.node.input("x").rows),
        limit_(context.limits.rows(rows_)),
        k_(context.node.input("x").width()),
        threads_(context.threads),
        wide_(context.settings.wide_activations) {
    for (const PackedMatrix& w : weights_) {
      panels_ += w.panels();
      auto known =
          std::ranges::find(prepared_, w.packing(), [&](std::size_t i) { return weights_[i].packing(); });
      if (known == prepared_.end()) known = prepared_.insert(known, region_.size());
      region_.push_back(known - prepared_.begin());
    }
  }

  void run(const Step& step, const NodeIo& io, ThreadPool& pool) override {
    const std::int64_t m = step.rows(rows_);
    if (m == 0) return;
    const bool own = m <= kOwnRows;
    const std::int64_t work = m * panels_ * PackedMatrix::kPanel * k_;
    if (!own) {
      const std::int64_t tiles = gemm_tiles(m);
      pool.run(work,
               [&](int thread) { prepare(io, m, io.scratch, static_range(tiles, thread, pool.threads())); });
    }
    pool.run(work, [&](int thread) {
      std::uint8_t* scratch = io.scratch;
      if (own) {
        scratch += thread * own_bytes();
        prepare(io, m, scratch, {0, gemm_tiles(m)});
      }
      Range mine = static_range(panels_, thread, pool.threads());
      for (std::size_t w = 0; w < weights_.size() && mine.end > 0; ++w) {
        const std::int64_t panels = weights_[w].panels();
        const Range part{std::max<std::int64_t>(mine.begin, 0), std::min(mine.end, panels)};
        if (part.begin < part.end) gemm_panels(kernels_, args(io, m, w, scratch), part.begin, part.end);
        mine.begin -= panels;
        mine.end -= panels;
      }
    });
  }

  [[nodiscard]] std::int64_t scratch_bytes() const override {
    return std::max(regions() * shared_bytes(limit_), threads_ * own_bytes());
  }
  [[nodiscard]] std::int64_t weight_bytes() const override {
    std::int64_t bytes = 0;
    for (const PackedMatrix& w : weights_) bytes += w.bytes();
    return bytes;
  }

 private:
  [[nodiscard]] std::int64_t shared_bytes(std::int64_t rows) const {
    return (static_cast<std::int64_t>(gemm_scratch_bytes(rows, k_)) + 63) / 64 * 64;
  }
  [[nodiscard]] std::int64_t regions() const { return std::ssize(prepared_); }
  [[nodiscard]] std::int64_t own_bytes() const {
    return regions() * shared_bytes(std::min(limit_, kOwnRows));
  }

  [[nodiscard]] GemmArgs args(const NodeIo& io, std::int64_t m, std::size_t w, std::uint8_t* scratch) const {
    const PackedMatrix& weight = weights_[w];
    return {.x = io.in(0),
            .ldx = k_,
            .m = m,
            .w = &weight,
            .y = io.out(w),
            .ldy = weight.n(),
            .arithmetic = arithmetic_,
            .wide_x = wide_,
            .scratch = scratch + region_[w] * shared_bytes(m)};
  }
  void prepare(const NodeIo& io, std::int64_t m, std::uint8_t* scratch, Range tiles) const {
    for (const std::size_t w : prepared_) {
      prepare_x(kernels_, args(io, m, w, scratch), tiles.begin, tiles.end);
    }
  }

  const CpuKernels& kernels_;
  std::vector<PackedMatrix> weights_;
  std::vector<std::size_t> prepared_;  // a weight of each packing: X is prepared once for all of it
  std::vector<std::int64_t> region_;   // [weights] where in the scratch X is prepared for it
  Arithmetic arithmetic_;
  Rows rows_;
  std::int64_t limit_;  // most rows of a step
  std::int64_t k_;
  std::int64_t panels_ = 0;
  int threads_;
  bool wide_;  // X in 16 bits where weights have 8
};

}  // namespace

Result<std::unique_ptr<Kernel>> make_linear_cpu(const KernelContext& context) {
  const bool f32 = context.f32 || context.node.text("precision") == "f32";
  std::vector<PackedMatrix> weights;
  for (const WeightSource* w : context.weight_list("weight")) {
    FL_ASSIGN(PackedMatrix packed, pack_weight(*w, context, context.settings.weights, f32));
    weights.push_back(std::move(packed));
  }
  return std::unique_ptr<Kernel>(
      std::make_unique<Linear>(context, std::move(weights), f32 ? Arithmetic::kF32 : Arithmetic::kBF16));
}

}  // namespace firstlight
