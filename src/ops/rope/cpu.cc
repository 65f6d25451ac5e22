#include <cstring>

#include "ops/rope/kernels.h"
#include "ops/rope/op.h"
#include "ops/shares.h"

namespace firstlight {
namespace {

class Rope final : public Kernel {
 public:
  explicit Rope(const KernelContext& context)
      : rotate_(context.node.text("layout") == "half" ? FL_PICK(context.isa, kRopeKernels).half
                                                      : FL_PICK(context.isa, kRopeKernels).interleaved),
        heads_(context.node.integer("heads")),
        dim_(context.node.input("x").width() / heads_),
        offset_(context.node.integer("offset")),
        rotated_(context.node.input("angles").width()) {}

  void run(const Step& step, const NodeIo& io, ThreadPool& pool) override {
    each_share(pool, step.rows(), heads_ * dim_, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t h = begin * heads_; h < end * heads_; ++h) {
        const float* x = io.in(0) + h * dim_;
        float* y = io.out() + h * dim_;
        copy(x, y, offset_);
        rotate_(x + offset_, io.in(1) + h / heads_ * rotated_, rotated_ / 2, y + offset_);
        const std::int64_t behind = offset_ + rotated_;
        copy(x + behind, y + behind, dim_ - behind);
      }
    });
  }

 private:
  static void copy(const float* from, float* to, std::int64_t count) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
  }

  RotateFunction rotate_;
  std::int64_t heads_;
  std::int64_t dim_;      // channels of a head
  std::int64_t offset_;   // first rotated channel
  std::int64_t rotated_;  // channels rotated
};

}  // namespace

Result<std::unique_ptr<Kernel>> make_rope_cpu(const KernelContext& context) {
  return std::unique_ptr<Kernel>(std::make_unique<Rope>(context));
}

}  // namespace firstlight
