// The kernel of operators that compute y[i] from a[i] and b[i] alone. Rows are dealt to threads.
#pragma once

#include <array>
#include <memory>

#include "ops/kernel.h"
#include "ops/shares.h"

namespace firstlight {

/// n elements; `constants` are the operator's attributes.
using ElementwiseFunction = void (*)(const float* a, const float* b, std::int64_t n, const float* constants,
                                     float* y);

class Elementwise final : public Kernel {
 public:
  Elementwise(ElementwiseFunction function, const ValueType& type, std::array<float, 2> constants = {})
      : function_(function), rows_(type.rows), width_(type.width()), constants_(constants) {}

  void run(const Step& step, const NodeIo& io, ThreadPool& pool) override {
    each_share(pool, step.rows(rows_) * width_, 1, [&](std::int64_t begin, std::int64_t end) {
      function_(io.in(0) + begin, io.in(1) + begin, end - begin, constants_.data(), io.out() + begin);
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
