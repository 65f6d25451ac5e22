#include <utility>

#include "ops/gated_norm/kernels.h"
#include "ops/gated_norm/op.h"
#include "ops/shares.h"

namespace firstlight {
namespace {

class GatedNorm final : public Kernel {
 public:
  GatedNorm(const GatedNormKernels& kernels, const NodeSpec& node, std::vector<float> weight)
      : kernels_(kernels),
        rows_(node.input("x").rows),
        heads_(node.integer("heads")),
        eps_(static_cast<float>(node.real("eps"))),
        silu_(node.text("activation") == "silu"),
        weight_(std::move(weight)) {}

  void run(const Step& step, const NodeIo& io, ThreadPool& pool) override {
    const auto width = static_cast<std::int64_t>(weight_.size());
    each_share(pool, step.rows(rows_) * heads_, width, [&](std::int64_t begin, std::int64_t end) {
      kernels_.heads(io.in(0) + begin * width, io.in(1) + begin * width, weight_.data(), eps_, end - begin,
                     width, silu_, io.out() + begin * width);
    });
  }
  [[nodiscard]] std::int64_t weight_bytes() const override {
    return static_cast<std::int64_t>(weight_.size() * sizeof(float));
  }

 private:
  const GatedNormKernels& kernels_;
  Rows rows_;
  std::int64_t heads_;
  float eps_;
  bool silu_;
  std::vector<float> weight_;  // [width of a head]
};

}  // namespace

Result<std::unique_ptr<Kernel>> make_gated_norm_cpu(const KernelContext& context) {
  FL_ASSIGN(std::vector<float> weight, read_all(context.weight("weight")));
  return std::unique_ptr<Kernel>(
      std::make_unique<GatedNorm>(FL_PICK(context.isa, kGatedNormKernels), context.node, std::move(weight)));
}

}  // namespace firstlight
