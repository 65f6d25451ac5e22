#include "ops/linear/pack_weight.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>

namespace firstlight {

namespace {

class FirstFailure {
 public:
  void keep(std::int64_t row, Status status) {
    const std::lock_guard lock(mutex_);
    if (!status_.ok() && row_ <= row) return;
    row_ = row;
    status_ = std::move(status);
  }
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  std::mutex mutex_;
  std::int64_t row_ = 0;
  Status status_;
};

}  // namespace

Result<PackedMatrix> pack_together(const std::vector<const WeightSource*>& weights,
                                   const KernelContext& context, bool keep_f32) {
  const std::int64_t columns = weights[0]->elements() / weights[0]->rows();
  const bool exact = std::ranges::all_of(weights, &WeightSource::exact_in_bf16);
  const DType target = packed_dtype(exact ? DType::kBF16 : DType::kF32,
                                    context.f32 ? Arithmetic::kF32 : Arithmetic::kBF16, keep_f32);
  // A row source cannot fail, a weight can (a scale that is not a number): the first failure in the order of
  // rows is kept, whichever thread meets it.
  FirstFailure failure;
  std::vector<RowSource> sources;
  std::int64_t before = 0;
  for (const WeightSource* weight : weights) {
    const auto read = [&failure, weight, columns, before](std::int64_t row, float* out) {
      if (Status s = weight->read_rows(row, 1, out); !s.ok()) {
        std::fill_n(out, columns, 0.0F);
        failure.keep(before + row, std::move(s));
      }
    };
    const auto stored = [weight, target](std::int64_t row) { return weight->stored_row(row, target); };
    sources.push_back({.rows = weight->rows(), .read = read, .stored = stored});
    before += weight->rows();
  }
  Result<PackedMatrix> packed = pack(sources, columns, target, context.pool);
  for (const WeightSource* weight : weights) weight->release();
  if (!failure.status().ok()) return Error{failure.status().error()};
  if (!packed.ok()) return Error{weights[0]->name() + ": " + packed.error().message};
  return packed;
}

Result<PackedMatrix> pack_weight(const WeightSource& weight, const KernelContext& context, bool keep_f32) {
  return pack_together({&weight}, context, keep_f32);
}

}  // namespace firstlight
