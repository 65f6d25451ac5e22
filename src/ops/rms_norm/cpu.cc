#include <utility>

#include "ops/rms_norm/kernels.h"
#include "ops/rms_norm/op.h"
#include "ops/shares.h"

namespace firstlight {
namespace {

class RmsNorm final : public Kernel {
 public:
  RmsNorm(const KernelContext& context, std::vector<float> weight)
      : kernels_(FL_PICK(context.isa, kRmsNormKernels)),
        rows_(context.node.input("x").rows),
        heads_(context.node.integer("heads")),
        weight_(std::move(weight)),
        eps_(static_cast<float>(context.node.real("eps"))) {
    const auto offset = static_cast<float>(context.node.real("weight_offset"));
    for (float& w : weight_) w += offset;
  }

  void run(const Step& step, const NodeIo& io, ThreadPool& pool) override {
    const auto width = static_cast<std::int64_t>(weight_.size());
    each_share(pool, step.rows(rows_) * heads_, width, [&](std::int64_t begin, std::int64_t end) {
      kernels_.rows(io.in(0) + begin * width, weight_.data(), eps_, end - begin, width,
                    io.out() + begin * width);
    });
  }
  [[nodiscard]] std::int64_t weight_bytes() const override {
    return static_cast<std::int64_t>(weight_.size() * sizeof(float));
  }

 private:
  const RmsNormKernels& kernels_;
  Rows rows_;
  std::int64_t heads_;
  std::vector<float> weight_;  // [width of a head], the offset added
  float eps_;
};

}  // namespace

Result<std::unique_ptr<Kernel>> make_rms_norm_cpu(const KernelContext& context) {
  FL_ASSIGN(std::vector<float> weight, read_all(context.weight("weight")));
  return std::unique_ptr<Kernel>(std::make_unique<RmsNorm>(context, std::move(weight)));
}

}  // namespace firstlight
