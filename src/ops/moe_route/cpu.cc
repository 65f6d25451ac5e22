#include <cstring>
#include <utility>
#include <vector>

#include "ops/moe_route/choose.h"
#include "ops/moe_route/kernels.h"
#include "ops/moe_route/op.h"

namespace firstlight {
namespace {

class MoeRoute final : public Kernel {
 public:
  MoeRoute(const KernelContext& context, std::vector<float> bias)
      : kernels_(FL_PICK(context.isa, kMoeRouteKernels)),
        scores_of_(context.node.text("score") == "softmax" ? kernels_.softmax : kernels_.sigmoid),
        settings_{.experts = context.node.input("logits").width(),
                  .topk = context.node.integer("topk"),
                  .groups = context.node.integer("groups"),
                  .topk_groups = context.node.integer("topk_groups"),
                  .renormalize = context.node.flag("renormalize"),
                  .scale = static_cast<float>(context.node.real("scale"))},
        bias_(std::move(bias)),
        node_(static_cast<std::size_t>(context.node_index)),
        scores_(static_cast<std::size_t>(settings_.experts * context.threads)),
        keys_(scores_.size()),
        sum_floats_((settings_.experts + 15) / 16 * 16),
        sums_(static_cast<std::size_t>(sum_floats_ * context.threads)) {}

  void run(const Step& step, const NodeIo& io, ThreadPool& pool) override {
    const std::int32_t* forced = node_ < step.forced.size() ? step.forced[node_] : nullptr;
    // A sigmoid and a place in the selection for each expert.
    pool.run(step.rows() * settings_.experts * 16, [&](int thread) {
      const Range mine = static_range(step.rows(), thread, pool.threads());
      float* scores = scores_.data() + thread * settings_.experts;
      for (std::int64_t r = mine.begin; r < mine.end; ++r) {
        std::int32_t* chosen = io.out_i32(0) + r * settings_.topk;
        scores_of_(io.in(0) + r * settings_.experts, settings_.experts, scores);
        if (forced != nullptr) {
          std::memcpy(chosen, forced + r * settings_.topk,
                      static_cast<std::size_t>(settings_.topk) * sizeof *chosen);
        } else {
          choose(scores, thread, chosen);
        }
        expert_weights(settings_, scores, chosen, io.out(1) + r * settings_.topk);
      }
    });
  }

 private:
  /// `scores`: of one row.
  void choose(const float* scores, int thread, std::int32_t* chosen) {
    const float* bias = bias_.empty() ? nullptr : bias_.data();
    if (settings_.groups == 1 && kernels_.choose(scores, bias, settings_.experts, settings_.topk,
                                                 sums_.data() + thread * sum_floats_, chosen)) {
      return;
    }
    choose_experts(settings_, scores, bias, keys_.data() + thread * settings_.experts, chosen);
  }

  const MoeRouteKernels& kernels_;
  decltype(MoeRouteKernels::sigmoid) scores_of_;
  RouteSettings settings_;
  std::vector<float> bias_;  // [experts] or empty; f32 in every mode
  std::size_t node_;
  std::vector<float> scores_;        // [threads, experts]
  std::vector<std::uint64_t> keys_;  // [threads, experts]
  std::int64_t sum_floats_;
  std::vector<float> sums_;  // [threads, sum_floats]
};

}  // namespace

Result<std::unique_ptr<Kernel>> make_moe_route_cpu(const KernelContext& context) {
  std::vector<float> bias;
  if (context.node.has("bias")) {
    FL_ASSIGN(bias, read_all(context.weight("bias")));
  }
  return std::unique_ptr<Kernel>(std::make_unique<MoeRoute>(context, std::move(bias)));
}

}  // namespace firstlight
