#include <vector>

#include "ops/embedding/op.h"

namespace firstlight {
namespace {

/// Rows are read from the checkpoint's mapping as they are asked for: a step touches T of them.
class Embedding final : public Kernel {
 public:
  explicit Embedding(const WeightSource& weight)
      : weight_(weight), width_(weight.elements() / weight.rows()), vocab_(weight.rows()) {}

  void run(const Step& step, const NodeIo& io, ThreadPool& /*pool*/) override {
    float* h = io.out();
    for (const std::int32_t token : step.tokens) {
      check(token >= 0 && token < vocab_, "a token id outside the vocabulary reached the embedding");
      check(weight_.read_rows(token, 1, h).ok(),
            "an embedding row that was readable at load is not any more");
      h += width_;
    }
  }

 private:
  const WeightSource& weight_;
  std::int64_t width_;
  std::int64_t vocab_;
};

}  // namespace

Result<std::unique_ptr<Kernel>> make_embedding_cpu(const KernelContext& context) {
  const WeightSource& weight = context.weight("weight");
  if (weight.reading_may_fail()) {  // better now than in the middle of an answer
    std::vector<float> row(static_cast<std::size_t>(weight.elements() / weight.rows()));
    for (std::int64_t r = 0; r < weight.rows(); ++r) FL_TRY(weight.read_rows(r, 1, row.data()));
  }
  return std::unique_ptr<Kernel>(std::make_unique<Embedding>(weight));
}

}  // namespace firstlight
