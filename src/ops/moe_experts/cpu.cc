#include <algorithm>
#include <array>
#include <iterator>
#include <utility>
#include <vector>

#include "ops/linear/pack_weight.h"
#include "ops/moe_experts/kernels.h"
#include "ops/moe_experts/op.h"

namespace firstlight {
namespace {

/// Rows are grouped by expert, each group is one product per matrix, and every token adds its experts'
/// outputs in ascending order: what a token gets does not depend on its neighbours.
class MoeExperts final : public Kernel {
 public:
  MoeExperts(const KernelContext& context, std::vector<PackedMatrix> gate_up, std::vector<PackedMatrix> down,
             std::vector<float> gate_up_bias, std::vector<float> down_bias)
      : kernels_(FL_PICK(context.isa, kMoeExpertsKernels)),
        gemm_(kernels(context.isa)),
        arithmetic_(context.f32 ? Arithmetic::kF32 : Arithmetic::kBF16),
        gate_up_(std::move(gate_up)),
        down_(std::move(down)),
        gate_up_bias_(std::move(gate_up_bias)),
        down_bias_(std::move(down_bias)),
        topk_(context.node.input("experts").width()),
        size_(context.node.input("x").width()),
        width_(context.node.input("gate").shape[0]),
        row_kind_(context.node.input("x").rows),
        limit_(context.limits.rows(row_kind_)),
        threads_(context.threads),
        activate_(activation(kernels_, context.node.text("activation"))),
        constants_(constants(context.node)),
        begin_(gate_up_.size() + 1),
        rows_(static_cast<std::size_t>(limit_ * topk_)),
        slots_(rows_.size()) {}

  void run(const Step& step, const NodeIo& io, ThreadPool& pool) override {
    const std::int64_t tokens = step.rows(row_kind_);
    group(io.in_i32(1), tokens);
    const std::int64_t pairs = tokens * topk_;
    auto* gate_up = reinterpret_cast<float*>(io.scratch);
    float* hidden = gate_up + pairs * 2 * width_;
    float* parts = hidden + pairs * width_;
    std::uint8_t* packed_x = io.scratch + buffers_bytes();

    pool.run(2 * pairs * width_ * size_, [&](int thread) {
      product(gate_up_, io.in(0), size_, rows_.data(), gate_up, 2 * width_, packed_x, thread, pool.threads());
    });
    pool.run(16 * pairs * width_, [&](int thread) {
      const Range mine = static_range(pairs, thread, pool.threads());
      if (gate_up_bias_.empty()) {
        activate_(gate_up + mine.begin * 2 * width_, nullptr, mine.end - mine.begin, width_,
                  constants_.data(), hidden + mine.begin * width_);
        return;
      }
      for (std::size_t e = 0; e < down_.size(); ++e) {  // each expert has its own bias
        const std::int64_t begin = std::max(mine.begin, begin_[e]);
        const std::int64_t end = std::min(mine.end, begin_[e + 1]);
        if (begin >= end) continue;
        activate_(gate_up + begin * 2 * width_,
                  gate_up_bias_.data() + static_cast<std::int64_t>(e) * 2 * width_, end - begin, width_,
                  constants_.data(), hidden + begin * width_);
      }
    });
    pool.run(pairs * width_ * size_, [&](int thread) {
      product(down_, hidden, width_, nullptr, parts, size_, packed_x, thread, pool.threads());
    });
    pool.run(pairs * size_, [&](int thread) {
      const Range mine = static_range(tokens, thread, pool.threads());
      for (std::int64_t t = mine.begin; t < mine.end; ++t) {
        kernels_.combine(parts, slots_.data() + t * topk_, down_bias_.empty() ? nullptr : down_bias_.data(),
                         io.in_i32(1) + t * topk_, io.in(2) + t * topk_, topk_, size_, io.out() + t * size_);
      }
    });
  }

  [[nodiscard]] std::int64_t scratch_bytes() const override { return buffers_bytes() + threads_ * x_bytes(); }
  [[nodiscard]] std::int64_t weight_bytes() const override {
    auto bytes = static_cast<std::int64_t>((gate_up_bias_.size() + down_bias_.size()) * sizeof(float));
    for (const PackedMatrix& w : gate_up_) bytes += w.bytes();
    for (const PackedMatrix& w : down_) bytes += w.bytes();
    return bytes;
  }

 private:
  static ActivateFunction activation(const MoeExpertsKernels& kernels, const std::string& name) {
    return name == "silu" ? kernels.silu : name == "situ" ? kernels.situ : kernels.clamped_swiglu;
  }
  static std::array<float, 2> constants(const NodeSpec& node) {
    const bool situ = node.text("activation") == "situ";
    return {static_cast<float>(node.real(situ ? "beta" : "limit")),
            static_cast<float>(node.real(situ ? "linear_beta" : "alpha"))};
  }

  /// gate_up [pairs, 2 width], hidden [pairs, width], parts [pairs, size].
  [[nodiscard]] std::int64_t buffers_bytes() const {
    return (limit_ * topk_ * (3 * width_ + size_) * static_cast<std::int64_t>(sizeof(float)) + 63) / 64 * 64;
  }
  [[nodiscard]] std::int64_t x_bytes() const {
    return (static_cast<std::int64_t>(gemm_scratch_bytes(limit_, std::max(size_, width_))) + 63) / 64 * 64;
  }

  /// Sorts (token, choice) pairs by expert, tokens ascending: pairs begin_[e]..begin_[e+1] are expert e's,
  /// rows_[pair] is the token, slots_[token, choice] the pair.
  void group(const std::int32_t* experts, std::int64_t tokens) {
    std::ranges::fill(begin_, 0);
    for (std::int64_t i = 0; i < tokens * topk_; ++i) {
      check(experts[i] >= 0 && experts[i] < std::ssize(down_),
            "an id that is no expert's reached the experts");
      ++begin_[static_cast<std::size_t>(experts[i]) + 1];
    }
    for (std::size_t e = 1; e < begin_.size(); ++e) begin_[e] += begin_[e - 1];
    for (std::int64_t i = 0; i < tokens * topk_; ++i) {
      const std::int64_t pair = begin_[static_cast<std::size_t>(experts[i])]++;
      rows_[static_cast<std::size_t>(pair)] = static_cast<std::int32_t>(i / topk_);
      slots_[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(pair);
    }
    for (std::size_t e = begin_.size() - 1; e > 0; --e) begin_[e] = begin_[e - 1];
    begin_[0] = 0;
  }

  /// y[pair] = W_e x for every pair of every expert; this thread's share of all panels of all experts in use.
  /// x_rows [pairs]: row of x of a pair, or null: the pair itself.
  void product(const std::vector<PackedMatrix>& weights, const float* x, std::int64_t ldx,
               const std::int32_t* x_rows, float* y, std::int64_t ldy, std::uint8_t* packed_x, int thread,
               int threads) const {
    const std::int64_t panels = weights[0].panels();
    std::int64_t used = 0;
    for (std::size_t e = 0; e < weights.size(); ++e) used += begin_[e + 1] > begin_[e] ? 1 : 0;
    Range mine = static_range(used * panels, thread, threads);
    for (std::size_t e = 0; e < weights.size() && mine.end > 0; ++e) {
      const std::int64_t m = begin_[e + 1] - begin_[e];
      if (m == 0) continue;
      const Range part{std::max<std::int64_t>(mine.begin, 0), std::min(mine.end, panels)};
      mine.begin -= panels;
      mine.end -= panels;
      if (part.begin >= part.end) continue;
      const GemmArgs args{.x = x_rows == nullptr ? x + begin_[e] * ldx : x,
                          .ldx = ldx,
                          .x_rows = x_rows == nullptr ? nullptr : x_rows + begin_[e],
                          .m = m,
                          .w = &weights[e],
                          .y = y + begin_[e] * ldy,
                          .ldy = ldy,
                          .arithmetic = arithmetic_,
                          .scratch = packed_x + thread * x_bytes()};
      prepare_x(gemm_, args, 0, gemm_tiles(m));
      gemm_panels(gemm_, args, part.begin, part.end);
    }
  }

  const MoeExpertsKernels& kernels_;
  const CpuKernels& gemm_;
  Arithmetic arithmetic_;
  std::vector<PackedMatrix> gate_up_;  // per expert: W1, then W3
  std::vector<PackedMatrix> down_;     // per expert: W2
  std::vector<float> gate_up_bias_;    // [experts, 2 width] or empty; f32 in every mode
  std::vector<float> down_bias_;       // [experts, size] or empty
  std::int64_t topk_;
  std::int64_t size_;   // width of x and y
  std::int64_t width_;  // of an expert
  Rows row_kind_;
  std::int64_t limit_;  // most rows of a step
  int threads_;
  ActivateFunction activate_;
  std::array<float, 2> constants_;
  std::vector<std::int64_t> begin_;  // [experts + 1]
  std::vector<std::int32_t> rows_;   // [pairs]
  std::vector<std::int32_t> slots_;  // [tokens, topk]
};

Result<std::vector<float>> read_biases(const std::vector<std::vector<const WeightSource*>>& lists) {
  std::vector<float> all;
  for (std::size_t e = 0; e < lists[0].size(); ++e) {
    for (const auto& list : lists) {
      FL_ASSIGN(const std::vector<float> bias, read_all(*list[e]));
      all.insert(all.end(), bias.begin(), bias.end());
    }
  }
  return all;
}

}  // namespace

Result<std::unique_ptr<Kernel>> make_moe_experts_cpu(const KernelContext& context) {
  const auto& gate = context.weight_list("gate");
  const auto& up = context.weight_list("up");
  const auto& down = context.weight_list("down");
  std::vector<PackedMatrix> gate_up;
  std::vector<PackedMatrix> packed_down;
  for (std::size_t e = 0; e < gate.size(); ++e) {
    FL_ASSIGN(PackedMatrix both, pack_together({gate[e], up[e]}, context, context.settings.experts));
    FL_ASSIGN(PackedMatrix last, pack_weight(*down[e], context, context.settings.experts));
    gate_up.push_back(std::move(both));
    packed_down.push_back(std::move(last));
  }
  FL_ASSIGN(std::vector<float> gate_up_bias,
            read_biases({context.weight_list("gate_bias"), context.weight_list("up_bias")}));
  FL_ASSIGN(std::vector<float> down_bias, read_biases({context.weight_list("down_bias")}));
  return std::unique_ptr<Kernel>(std::make_unique<MoeExperts>(
      context, std::move(gate_up), std::move(packed_down), std::move(gate_up_bias), std::move(down_bias)));
}

}  // namespace firstlight
