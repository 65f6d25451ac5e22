#include <utility>

#include "ops/add_bias/op.h"
#include "ops/shares.h"

namespace firstlight {
namespace {

/// One sum an element: the same on every instruction set, so plain code.
class AddBias final : public Kernel {
 public:
  AddBias(Rows rows, std::vector<float> bias) : rows_(rows), bias_(std::move(bias)) {}

  void run(const Step& step, const NodeIo& io, ThreadPool& pool) override {
    const auto width = static_cast<std::int64_t>(bias_.size());
    each_share(pool, step.rows(rows_), width, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const float* x = io.in(0) + r * width;
        float* y = io.out() + r * width;
        for (std::int64_t i = 0; i < width; ++i) y[i] = x[i] + bias_[static_cast<std::size_t>(i)];
      }
    });
  }
  [[nodiscard]] std::int64_t weight_bytes() const override {
    return static_cast<std::int64_t>(bias_.size() * sizeof(float));
  }

 private:
  Rows rows_;
  std::vector<float> bias_;  // [width]; f32 in every mode
};

}  // namespace

Result<std::unique_ptr<Kernel>> make_add_bias_cpu(const KernelContext& context) {
  FL_ASSIGN(std::vector<float> bias, read_all(context.weight("bias")));
  return std::unique_ptr<Kernel>(std::make_unique<AddBias>(context.node.input("x").rows, std::move(bias)));
}

}  // namespace firstlight
