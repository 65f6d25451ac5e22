#include <utility>
#include <vector>

#include "ops/depth_mix/kernels.h"
#include "ops/depth_mix/op.h"

namespace firstlight {
namespace {

class DepthMix final : public Kernel {
 public:
  DepthMix(const KernelContext& context, std::vector<float> direction)
      : kernels_(FL_PICK(context.isa, kDepthMixKernels)),
        direction_(std::move(direction)),
        rows_(context.node.input("sources").rows),
        sources_(context.node.inputs("sources").size()),
        scores_(sources_ * static_cast<std::size_t>(context.threads)),
        eps_(static_cast<float>(context.node.real("eps"))) {}

  void run(const Step& step, const NodeIo& io, ThreadPool& pool) override {
    // All inputs of this operator are f32 rows.
    const auto* sources = reinterpret_cast<const float* const*>(io.inputs.data());
    const auto work = static_cast<std::int64_t>(3 * sources_ * direction_.size());
    pool.run(step.rows() * work, [&](int thread) {
      const Range mine = static_range(step.rows(rows_), thread, pool.threads());
      kernels_.rows(sources, static_cast<std::int64_t>(sources_), direction_.data(), eps_, mine.begin,
                    mine.end, static_cast<std::int64_t>(direction_.size()),
                    scores_.data() + static_cast<std::size_t>(thread) * sources_, io.out());
    });
  }

 private:
  const DepthMixKernels& kernels_;
  std::vector<float> direction_;  // [D], norm * proj in f32
  Rows rows_;
  std::size_t sources_;
  std::vector<float> scores_;  // [threads, sources]
  float eps_;
};

}  // namespace

Result<std::unique_ptr<Kernel>> make_depth_mix_cpu(const KernelContext& context) {
  FL_ASSIGN(std::vector<float> direction, read_all(context.weight("norm")));
  FL_ASSIGN(const std::vector<float> proj, read_all(context.weight("proj")));
  for (std::size_t i = 0; i < direction.size(); ++i) direction[i] *= proj[i];
  return std::unique_ptr<Kernel>(std::make_unique<DepthMix>(context, std::move(direction)));
}

}  // namespace firstlight
