#include <cmath>
#include <utility>

#include "ops/kda/kernels.h"
#include "ops/kda/layout.h"
#include "ops/kda/op.h"

namespace firstlight {
namespace {

/// Weights of all heads as the kernels want them.
struct KdaWeights {
  std::vector<float> rates;    // [heads] exp(A_log)
  std::vector<float> dt_bias;  // [heads, key_stride], or [heads] with one decay a head
};

KdaShape shape_of(const NodeSpec& node) {
  const KdaLayout l{node.integer("key_dim"), node.integer("value_dim")};
  return {.dk = l.dk,
          .dv = l.dv,
          .panels = l.panels(),
          .key_stride = l.key_stride(),
          .value_stride = l.value_stride(),
          .c = l.c(),
          .r = l.r(),
          .x = l.x(),
          .q_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(l.dk))),
          .lower_bound = static_cast<float>(node.real("lower_bound")),
          .head_decay = kda_head_decay(node)};
}

class Kda final : public Kernel {
 public:
  Kda(const KernelContext& context, const KdaKernels& kernels, KdaWeights weights)
      : kernels_(kernels),
        shape_(shape_of(context.node)),
        heads_(context.node.integer("heads")),
        key_heads_(kda_key_heads(context.node)),
        head_floats_(KdaLayout{shape_.dk, shape_.dv}.head_floats()),
        thread_floats_((kernels.scratch_floats(shape_) + 15) / 16 * 16),
        threads_(context.threads),
        place_(context.caches.front()),
        weights_(std::move(weights)) {}

  void run(const Step& step, const NodeIo& io, ThreadPool& pool) override {
    check(pool.threads() <= threads_, "kda runs on more threads than its scratch is made for");
    std::int64_t total = 0;
    for (const SequenceRows& s : step.sequences) total += heads_ * weight_of(s);
    if (total == 0) return;
    pool.run(step.rows() * heads_ * 3 * shape_.dk * shape_.dv, [&](int thread) {
      auto* const scratch = reinterpret_cast<float*>(io.scratch) + thread * thread_floats_;
      // An item is one head of one sequence. It belongs to the thread whose share of the work it begins in.
      std::int64_t before = 0;
      for (const SequenceRows& s : step.sequences) {
        for (std::int64_t h = 0; h < heads_; ++h, before += weight_of(s)) {
          if (before * pool.threads() / total == thread) run_head(s, io, h, scratch);
        }
      }
    });
  }
  [[nodiscard]] std::int64_t scratch_bytes() const override {
    return threads_ * thread_floats_ * static_cast<std::int64_t>(sizeof(float));
  }
  [[nodiscard]] std::int64_t weight_bytes() const override {
    return static_cast<std::int64_t>((weights_.rates.size() + weights_.dt_bias.size()) * sizeof(float));
  }

  [[nodiscard]] std::vector<StateValue> state_values() const override {
    return {{"state", {heads_, shape_.dk, shape_.dv}}};
  }
  void export_state(std::size_t /*i*/, const std::uint8_t* state, std::int64_t position,
                    float* out) const override {
    std::vector<float> panels(static_cast<std::size_t>(shape_.dk * shape_.value_stride));
    const auto* const heads = reinterpret_cast<const float*>(state + place_.offset);
    for (std::int64_t h = 0; h < heads_; ++h) {
      kernels_.state_at(shape_, heads + h * head_floats_, position, panels.data());
      for (std::int64_t d = 0; d < shape_.dk; ++d) {
        for (std::int64_t v = 0; v < shape_.dv; ++v) {
          const std::int64_t at = (v / kKdaPanel * shape_.dk + d) * kKdaPanel + v % kKdaPanel;
          *out++ = panels[static_cast<std::size_t>(at)];
        }
      }
    }
  }

 private:
  /// Relative work of one head: reading S_0 costs a chunk about as much as four rows in cache, and more
  /// where it comes from memory.
  static std::int64_t weight_of(const SequenceRows& s) {
    if (s.rows == 0) return 0;
    return s.rows + 4 * ((s.position + s.rows - 1) / kKdaChunk - s.position / kKdaChunk + 1);
  }

  void run_head(const SequenceRows& s, const NodeIo& io, std::int64_t h, float* scratch) const {
    if (s.rows == 0) return;
    const std::int64_t key_head = h / (heads_ / key_heads_);
    const std::int64_t keys = (s.first_row * key_heads_ + key_head) * shape_.dk;
    const std::int64_t decays = shape_.head_decay ? 1 : shape_.dk;
    const std::int64_t values = s.first_row * heads_ * shape_.dv + h * shape_.dv;
    const KdaRows rows{.q = io.in(0) + keys,
                       .k = io.in(1) + keys,
                       .f = io.in(3) + (s.first_row * heads_ + h) * decays,
                       .v = io.in(2) + values,
                       .beta = io.in(4) + s.first_row * heads_ + h,
                       .o = io.out() + values,
                       .key_step = key_heads_ * shape_.dk,
                       .value_step = heads_ * shape_.dv,
                       .f_step = heads_ * decays,
                       .beta_step = heads_,
                       .rows = s.rows,
                       .position = s.position,
                       .dt_bias = weights_.dt_bias.data() + h * (shape_.head_decay ? 1 : shape_.key_stride),
                       .rate = weights_.rates[static_cast<std::size_t>(h)]};
    kernels_.rows(shape_, rows, reinterpret_cast<float*>(s.state + place_.offset) + h * head_floats_,
                  scratch);
  }

  const KdaKernels& kernels_;
  KdaShape shape_;
  std::int64_t heads_;
  std::int64_t key_heads_;
  std::int64_t head_floats_;
  std::int64_t thread_floats_;
  int threads_;
  CachePlace place_;
  KdaWeights weights_;
};

}  // namespace

Result<std::unique_ptr<Kernel>> make_kda_cpu(const KernelContext& context) {
  const KdaKernels& kernels = FL_PICK(context.isa, kKdaKernels);
  const KdaShape shape = shape_of(context.node);
  const auto heads = static_cast<std::size_t>(context.node.integer("heads"));
  KdaWeights weights;
  FL_ASSIGN(weights.rates, read_all(context.weight("A_log")));
  weights.rates.resize(heads);  // what follows is padding
  kernels.exp(weights.rates.data(), static_cast<std::int64_t>(heads));
  for (std::size_t h = 0; h < heads; ++h) {
    if (!std::isfinite(weights.rates[h])) {
      return contract_error(context.node, "the weight `" + context.weight("A_log").name() +
                                              "` has no finite " + "exp at head " + std::to_string(h));
    }
  }
  FL_ASSIGN(const std::vector<float> bias, read_all(context.weight("dt_bias")));
  const auto width = static_cast<std::size_t>(shape.head_decay ? 1 : shape.dk);
  const auto stride = static_cast<std::size_t>(shape.head_decay ? 1 : shape.key_stride);
  weights.dt_bias.resize(heads * stride);
  for (std::size_t h = 0; h < heads; ++h) {
    for (std::size_t d = 0; d < width; ++d) weights.dt_bias[h * stride + d] = bias[h * width + d];
  }
  return std::unique_ptr<Kernel>(std::make_unique<Kda>(context, kernels, std::move(weights)));
}

}  // namespace firstlight
