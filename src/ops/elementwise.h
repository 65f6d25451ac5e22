// The kernel of operators that compute y[i] from a[i] and b[i] alone. Rows are dealt to threads.
#pragma once

#include <array>
#include <memory>

#include "ops/kernel.h"

namespace firstlight {

/// n elements; `constants` are the operator's attributes.
using ElementwiseFunction = void (*)(const float* a, const float* b, std::int64_t n, const float* constants,
                                     float* y);

class Elementwise final : public Kernel {
 public:
  Elementwise(ElementwiseFunction function, const ValueType& type, std::array<float, 2> constants = {})
      : function_(function), rows_(type.rows), width_(type.width()), constants_(constants) {}

  void run(const Step& step, const NodeIo& io, ThreadPool& pool) override {
    const std::int64_t elements = step.rows(rows_) * width_;
    // Below this a barrier costs more than the work.
    constexpr std::int64_t kAlone = 8192;
    if (elements <= kAlone) {
      function_(io.in(0), io.in(1), elements, constants_.data(), io.out());
      return;
    }
    pool.run([&](int thread) {
      const Range r = static_range(elements, thread, pool.threads());
      function_(io.in(0) + r.begin, io.in(1) + r.begin, r.end - r.begin, constants_.data(),
                io.out() + r.begin);
    });
  }

 private:
  ElementwiseFunction function_;
  Rows rows_;
  std::int64_t width_;
  std::array<float, 2> constants_;
};

struct ElementwiseKernels {
  ElementwiseFunction function;
};

}  // namespace firstlight
