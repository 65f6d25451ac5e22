#include <utility>

#include "ops/layer_norm/kernels.h"
#include "ops/layer_norm/op.h"
#include "ops/shares.h"

namespace firstlight {
namespace {

class LayerNorm final : public Kernel {
 public:
  LayerNorm(const LayerNormKernels& kernels, Rows rows, std::vector<float> weight, std::vector<float> bias,
            float eps)
      : kernels_(kernels), rows_(rows), weight_(std::move(weight)), bias_(std::move(bias)), eps_(eps) {}

  void run(const Step& step, const NodeIo& io, ThreadPool& pool) override {
    const auto width = static_cast<std::int64_t>(weight_.size());
    each_share(pool, step.rows(rows_), width, [&](std::int64_t begin, std::int64_t end) {
      kernels_.rows(io.in(0) + begin * width, weight_.data(), bias_.data(), eps_, end - begin, width,
                    io.out() + begin * width);
    });
  }
  [[nodiscard]] std::int64_t weight_bytes() const override {
    return static_cast<std::int64_t>((weight_.size() + bias_.size()) * sizeof(float));
  }

 private:
  const LayerNormKernels& kernels_;
  Rows rows_;
  std::vector<float> weight_;  // [width]
  std::vector<float> bias_;    // [width]
  float eps_;
};

}  // namespace

Result<std::unique_ptr<Kernel>> make_layer_norm_cpu(const KernelContext& context) {
  FL_ASSIGN(std::vector<float> weight, read_all(context.weight("weight")));
  FL_ASSIGN(std::vector<float> bias, read_all(context.weight("bias")));
  return std::unique_ptr<Kernel>(std::make_unique<LayerNorm>(
      FL_PICK(context.isa, kLayerNormKernels), context.node.input("x").rows, std::move(weight),
      std::move(bias), static_cast<float>(context.node.real("eps"))));
}

}  // namespace firstlight
