#include <cstring>

#include "ops/sampled_rows/op.h"

namespace firstlight {
namespace {

class SampledRows final : public Kernel {
 public:
  explicit SampledRows(std::int64_t width) : width_(width) {}

  void run(const Step& step, const NodeIo& io, ThreadPool& /*pool*/) override {
    float* y = io.out();
    for (const std::int32_t row : step.sampled_rows) {
      std::memcpy(y, io.in(0) + row * width_, static_cast<std::size_t>(width_) * sizeof(float));
      y += width_;
    }
  }

 private:
  std::int64_t width_;
};

}  // namespace

Result<std::unique_ptr<Kernel>> make_sampled_rows_cpu(const KernelContext& context) {
  return std::unique_ptr<Kernel>(std::make_unique<SampledRows>(context.node.input("x").width()));
}

}  // namespace firstlight
