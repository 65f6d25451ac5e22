#include <cstring>

#include "ops/shares.h"
#include "ops/split/op.h"

namespace firstlight {
namespace {

class Split final : public Kernel {
 public:
  Split(const ValueType& x, std::int64_t at) : rows_(x.rows), width_(x.width()), at_(at) {}

  void run(const Step& step, const NodeIo& io, ThreadPool& pool) override {
    const std::int64_t rest = width_ - at_;
    each_share(pool, step.rows(rows_), width_, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const float* x = io.in(0) + r * width_;
        std::memcpy(io.out(0) + r * at_, x, static_cast<std::size_t>(at_) * sizeof(float));
        std::memcpy(io.out(1) + r * rest, x + at_, static_cast<std::size_t>(rest) * sizeof(float));
      }
    });
  }

 private:
  Rows rows_;
  std::int64_t width_;
  std::int64_t at_;
};

}  // namespace

Result<std::unique_ptr<Kernel>> make_split_cpu(const KernelContext& context) {
  return std::unique_ptr<Kernel>(
      std::make_unique<Split>(context.node.input("x"), context.node.integer("at")));
}

}  // namespace firstlight
