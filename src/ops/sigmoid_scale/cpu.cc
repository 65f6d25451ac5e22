#include "ops/shares.h"
#include "ops/sigmoid_scale/kernels.h"
#include "ops/sigmoid_scale/op.h"

namespace firstlight {
namespace {

class SigmoidScale final : public Kernel {
 public:
  SigmoidScale(const SigmoidScaleKernels& kernels, const ValueType& x, std::int64_t heads)
      : kernels_(kernels), rows_(x.rows), heads_(heads), width_(x.width() / heads) {}

  void run(const Step& step, const NodeIo& io, ThreadPool& pool) override {
    // Heads of a row are rows of their own: nothing but the gate tells them apart.
    each_share(pool, step.rows(rows_) * heads_, width_, [&](std::int64_t begin, std::int64_t end) {
      kernels_.rows(io.in(0) + begin * width_, io.in(1) + begin, end - begin, width_,
                    io.out() + begin * width_);
    });
  }

 private:
  const SigmoidScaleKernels& kernels_;
  Rows rows_;
  std::int64_t heads_;
  std::int64_t width_;  // of a head
};

}  // namespace

Result<std::unique_ptr<Kernel>> make_sigmoid_scale_cpu(const KernelContext& context) {
  return std::unique_ptr<Kernel>(std::make_unique<SigmoidScale>(
      FL_PICK(context.isa, kSigmoidScaleKernels), context.node.input("x"), context.node.integer("heads")));
}

}  // namespace firstlight
