#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

#include "ops/linear/pack_weight.h"
#include "ops/moe_experts/kernels.h"
#include "ops/moe_experts/op.h"
#include "ops/scratch.h"

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
        owner_(gate_up_.size()),
        load_(static_cast<std::size_t>(context.threads)),
        place_(load_.size() + 1),
        rows_(static_cast<std::size_t>(limit_ * topk_)),
        slots_(rows_.size()) {
    used_.reserve(gate_up_.size());
    const Packing packing = gate_up_[0].packing();
    codes_shared_ = is_quantised(packing) && std::ranges::all_of(gate_up_, [&](const PackedMatrix& w) {
                      return w.packing() == packing;
                    });
  }

  void run(const Step& step, const NodeIo& io, ThreadPool& pool) override {
    const std::int64_t tokens = step.rows(row_kind_);
    group(io.in_i32(1), tokens);
    const std::int64_t pairs = tokens * topk_;
    const Buffers buffers = buffers_in(io.scratch);
    const std::byte* coded_x = nullptr;
    if (codes_shared_) {  // once a token, not once a token and expert
      coded_x = buffers.coded_x;
      pool.run(8 * tokens * size_, [&](int thread) {
        const Range mine = static_range(tokens, thread, pool.threads());
        code_rows(gemm_, gate_up_[0].packing(), io.in(0) + mine.begin * size_, size_, mine.end - mine.begin,
                  size_, buffers.coded_x + mine.begin * coded_row_bytes(size_));
      });
    }
    if (deal(pool.threads())) {
      pool.run(3 * pairs * width_ * size_, [&](int thread) {
        for (std::size_t e = 0; e < down_.size(); ++e) {
          if (owner_[e] == thread) whole_expert(e, io, coded_x, buffers, thread);
        }
      });
    } else {
      pool.run(2 * pairs * width_ * size_, [&](int thread) {
        product(gate_up_, {.x = io.in(0), .ldx = size_, .coded_x = coded_x, .x_rows = rows_.data()},
                buffers.gate_up, 2 * width_, scratch_of(buffers, thread), thread, pool.threads());
      });
      pool.run(16 * pairs * width_, [&](int thread) {
        const Range mine = static_range(pairs, thread, pool.threads());
        for (std::size_t e = 0; e < down_.size(); ++e) {
          const std::int64_t begin = std::max(mine.begin, begin_[e]);
          const std::int64_t end = std::min(mine.end, begin_[e + 1]);
          if (begin < end) activate(e, begin, end - begin, buffers);
        }
      });
      pool.run(pairs * width_ * size_, [&](int thread) {
        product(down_, {.x = buffers.hidden, .ldx = width_}, buffers.parts, size_,
                scratch_of(buffers, thread), thread, pool.threads());
      });
    }
    pool.run(pairs * size_, [&](int thread) {
      const Range mine = static_range(tokens, thread, pool.threads());
      for (std::int64_t t = mine.begin; t < mine.end; ++t) {
        kernels_.combine(buffers.parts, slots_.data() + t * topk_,
                         down_bias_.empty() ? nullptr : down_bias_.data(), io.in_i32(1) + t * topk_,
                         io.in(2) + t * topk_, topk_, size_, io.out() + t * size_);
      }
    });
  }

  [[nodiscard]] std::int64_t scratch_bytes() const override { return buffers_in(nullptr).bytes; }
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

  struct Buffers {
    float* gate_up;      // [pairs, 2 width]
    float* hidden;       // [pairs, width]
    float* parts;        // [pairs, size]
    std::byte* coded_x;  // [tokens, coded_row_bytes(size)]
    std::uint8_t* x;     // a thread: X prepared
    std::int64_t bytes;
  };
  [[nodiscard]] Buffers buffers_in(std::uint8_t* scratch) const {
    ScratchCarver carve(scratch);
    const std::int64_t pairs = limit_ * topk_;
    Buffers b{};
    b.gate_up = carve.take<float>(pairs * 2 * width_);
    b.hidden = carve.take<float>(pairs * width_);
    b.parts = carve.take<float>(pairs * size_);
    b.coded_x = carve.take<std::byte>(codes_shared_ ? limit_ * coded_row_bytes(size_) : 0);
    b.x = carve.take<std::uint8_t>(threads_ * x_bytes());
    b.bytes = carve.used();
    return b;
  }
  [[nodiscard]] std::int64_t x_bytes() const {
    return (static_cast<std::int64_t>(gemm_scratch_bytes(limit_, std::max(size_, width_))) + 63) / 64 * 64;
  }
  [[nodiscard]] std::uint8_t* scratch_of(const Buffers& buffers, int thread) const {
    return buffers.x + thread * x_bytes();
  }

  /// Work of an expert relative to that of one row: few rows cost the reading of its weights as well.
  [[nodiscard]] std::int64_t work_of(std::size_t e) const {
    const std::int64_t rows = begin_[e + 1] - begin_[e];
    return rows == 0 ? 0 : rows + 8;
  }

  /// Deals whole experts to threads, each to the one with the least work so far, largest first. False when
  /// that keeps them less than evenly busy: then all experts are cut among all threads.
  bool deal(int threads) {
    std::int64_t total = 0;
    used_.clear();
    for (std::size_t e = 0; e < down_.size(); ++e) {
      if (work_of(e) > 0) used_.push_back(e);
      total += work_of(e);
    }
    std::ranges::sort(used_, [&](std::size_t a, std::size_t b) {
      return work_of(a) != work_of(b) ? work_of(a) > work_of(b) : a < b;
    });
    std::ranges::fill(load_, 0);
    std::ranges::fill(owner_, -1);
    for (const std::size_t e : used_) {
      const auto least = std::ranges::min_element(load_.begin(), load_.begin() + threads);
      *least += work_of(e);
      owner_[e] = static_cast<int>(least - load_.begin());
    }
    std::ranges::fill(place_, 0);
    for (const std::size_t e : used_) {
      std::int64_t& rows = place_[static_cast<std::size_t>(owner_[e]) + 1];
      rows = std::max(rows, begin_[e + 1] - begin_[e]);
    }
    std::partial_sum(place_.begin(), place_.end(), place_.begin());
    return *std::ranges::max_element(load_) * threads * 31 <= total * 32;
  }

  /// Rows [from, from + rows) of the buffers, of expert e.
  void activate(std::size_t e, std::int64_t from, std::int64_t rows, const Buffers& buffers) const {
    const float* bias =
        gate_up_bias_.empty() ? nullptr : gate_up_bias_.data() + static_cast<std::int64_t>(e) * 2 * width_;
    activate_(buffers.gate_up + from * 2 * width_, bias, rows, width_, constants_.data(),
              buffers.hidden + from * width_);
  }

  /// All of an expert on one thread: what lies between its products stays near, at the same place as that of
  /// the thread's other experts.
  void whole_expert(std::size_t e, const NodeIo& io, const std::byte* coded_x, const Buffers& buffers,
                    int thread) const {
    const std::int64_t begin = begin_[e];
    const std::int64_t m = begin_[e + 1] - begin;
    const std::int64_t place = place_[static_cast<std::size_t>(thread)];
    std::uint8_t* const scratch = scratch_of(buffers, thread);
    multiply(gate_up_[e],
             {.x = io.in(0),
              .ldx = size_,
              .coded_x = coded_x,
              .x_rows = rows_.data() + begin,
              .m = m,
              .y = buffers.gate_up + place * 2 * width_,
              .ldy = 2 * width_,
              .scratch = scratch},
             {0, gate_up_[e].panels()});
    activate(e, place, m, buffers);
    multiply(down_[e],
             {.x = buffers.hidden + place * width_,
              .ldx = width_,
              .m = m,
              .y = buffers.parts + begin * size_,
              .ldy = size_,
              .scratch = scratch},
             {0, down_[e].panels()});
  }

  void multiply(const PackedMatrix& w, GemmArgs args, Range panels) const {
    args.w = &w;
    args.arithmetic = arithmetic_;
    prepare_x(gemm_, args, 0, gemm_tiles(args.m));
    gemm_panels(gemm_, args, panels.begin, panels.end);
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
  /// With x_rows, x is [tokens]; else it is [pairs].
  void product(const std::vector<PackedMatrix>& weights, GemmArgs args, float* y, std::int64_t ldy,
               std::uint8_t* scratch, int thread, int threads) const {
    const std::int64_t panels = weights[0].panels();
    std::int64_t used = 0;
    for (std::size_t e = 0; e < weights.size(); ++e) used += begin_[e + 1] > begin_[e] ? 1 : 0;
    Range mine = static_range(used * panels, thread, threads);
    const float* const x = args.x;
    args.ldy = ldy;
    args.scratch = scratch;
    for (std::size_t e = 0; e < weights.size() && mine.end > 0; ++e) {
      args.m = begin_[e + 1] - begin_[e];
      if (args.m == 0) continue;
      const Range part{std::max<std::int64_t>(mine.begin, 0), std::min(mine.end, panels)};
      mine.begin -= panels;
      mine.end -= panels;
      if (part.begin >= part.end) continue;
      if (args.x_rows == nullptr) {
        args.x = x + begin_[e] * args.ldx;
        args.y = y + begin_[e] * ldy;
        multiply(weights[e], args, part);
      } else {
        GemmArgs gathered = args;
        gathered.x_rows = args.x_rows + begin_[e];
        gathered.y = y + begin_[e] * ldy;
        multiply(weights[e], gathered, part);
      }
    }
  }

  const MoeExpertsKernels& kernels_;
  const CpuKernels& gemm_;
  Arithmetic arithmetic_;
  std::vector<PackedMatrix> gate_up_;  // per expert: W1, then W3
  std::vector<PackedMatrix> down_;     // per expert: W2
  bool codes_shared_ = false;          // every W1, W3 reads the same codes of x
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
  std::vector<int> owner_;           // [experts] the thread that computes all of it
  std::vector<std::int64_t> load_;   // [threads] work dealt to it
  std::vector<std::int64_t> place_;  // [threads + 1] the first of the rows of buffers that are its own
  std::vector<std::size_t> used_;    // experts with rows
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
  // All of a kind side by side: where one expert's panels end, the next one's begin.
  for (std::size_t e = 0; e < gate.size(); ++e) {
    FL_ASSIGN(PackedMatrix both, pack_together({gate[e], up[e]}, context, context.settings.experts));
    gate_up.push_back(std::move(both));
  }
  for (const WeightSource* w : down) {
    FL_ASSIGN(PackedMatrix last, pack_weight(*w, context, context.settings.experts));
    packed_down.push_back(std::move(last));
  }
  FL_ASSIGN(std::vector<float> gate_up_bias,
            read_biases({context.weight_list("gate_bias"), context.weight_list("up_bias")}));
  FL_ASSIGN(std::vector<float> down_bias, read_biases({context.weight_list("down_bias")}));
  return std::unique_ptr<Kernel>(std::make_unique<MoeExperts>(
      context, std::move(gate_up), std::move(packed_down), std::move(gate_up_bias), std::move(down_bias)));
}

}  // namespace firstlight
