#include <algorithm>
#include <utility>
#include <vector>

#include "ops/rope_angles/op.h"
#include "ops/rope_angles/sin_cos.h"

namespace firstlight {
namespace {

class RopeAngles final : public Kernel {
 public:
  RopeAngles(std::vector<float> frequencies, double scale)
      : frequencies_(std::move(frequencies)), scale_(scale) {}

  void run(const Step& step, const NodeIo& io, ThreadPool& pool) override {
    const auto count = static_cast<std::int64_t>(frequencies_.size());
    pool.run(step.rows() * count * 60, [&](int thread) {
      const Range mine = static_range(step.rows(), thread, pool.threads());
      for (const SequenceRows& s : step.sequences) {
        const std::int64_t begin = std::max(mine.begin, s.first_row);
        const std::int64_t end = std::min(mine.end, s.first_row + s.rows);
        for (std::int64_t r = begin; r < end; ++r)
          row(s.position + r - s.first_row, io.out() + r * 2 * count);
      }
    });
  }

 private:
  void row(std::int64_t position, float* y) const {
    const std::size_t count = frequencies_.size();
    for (std::size_t i = 0; i < count; ++i) {
      // The product is rounded to f32, as in the reference implementations that models were trained with: at
      // position 10^6 the rounding is larger than any other error here.
      const float angle = static_cast<float>(position) * frequencies_[i];
      const SinCos v = sin_cos(angle);
      y[i] = static_cast<float>(v.cos * scale_);
      y[count + i] = static_cast<float>(v.sin * scale_);
    }
  }

  std::vector<float> frequencies_;  // [pairs]
  double scale_;
};

}  // namespace

Result<std::unique_ptr<Kernel>> make_rope_angles_cpu(const KernelContext& context) {
  std::vector<float> frequencies;
  for (const double f : context.node.reals("frequencies")) frequencies.push_back(static_cast<float>(f));
  return std::unique_ptr<Kernel>(
      std::make_unique<RopeAngles>(std::move(frequencies), context.node.real("scale")));
}

}  // namespace firstlight
