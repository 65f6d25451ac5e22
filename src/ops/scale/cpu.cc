#include "ops/scale/op.h"
#include "ops/shares.h"

namespace firstlight {
namespace {

/// One product an element: the same on every instruction set, so plain code.
class Scale final : public Kernel {
 public:
  Scale(const ValueType& x, float factor) : rows_(x.rows), width_(x.width()), factor_(factor) {}

  void run(const Step& step, const NodeIo& io, ThreadPool& pool) override {
    each_share(pool, step.rows(rows_), width_, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin * width_; i < end * width_; ++i) io.out()[i] = io.in(0)[i] * factor_;
    });
  }

 private:
  Rows rows_;
  std::int64_t width_;
  float factor_;
};

}  // namespace

Result<std::unique_ptr<Kernel>> make_scale_cpu(const KernelContext& context) {
  return std::unique_ptr<Kernel>(
      std::make_unique<Scale>(context.node.input("x"), static_cast<float>(context.node.real("factor"))));
}

}  // namespace firstlight
