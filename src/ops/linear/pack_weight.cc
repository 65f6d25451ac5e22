#include "ops/linear/pack_weight.h"

#include <algorithm>
#include <string>

namespace firstlight {

Result<PackedMatrix> pack_together(const std::vector<const WeightSource*>& weights,
                                   const KernelContext& context, bool keep_f32) {
  const std::int64_t columns = weights[0]->elements() / weights[0]->rows();
  const bool exact = std::ranges::all_of(weights, &WeightSource::exact_in_bf16);
  const DType target = packed_dtype(exact ? DType::kBF16 : DType::kF32,
                                    context.f32 ? Arithmetic::kF32 : Arithmetic::kBF16, keep_f32);
  // A row source cannot fail, a weight can (a scale that is not a number): the first failure is kept.
  Status status;
  std::vector<RowSource> sources;
  for (const WeightSource* weight : weights) {
    sources.push_back(
        {.rows = weight->rows(), .read = [&status, weight, columns](std::int64_t row, float* out) {
           if (Status s = weight->read_rows(row, 1, out); !s.ok()) {
             std::fill_n(out, columns, 0.0F);
             if (status.ok()) status = std::move(s);
           }
         }});
  }
  Result<PackedMatrix> packed = pack(sources, columns, target);
  if (!status.ok()) return Error{status.error()};
  if (!packed.ok()) return Error{weights[0]->name() + ": " + packed.error().message};
  return packed;
}

Result<PackedMatrix> pack_weight(const WeightSource& weight, const KernelContext& context, bool keep_f32) {
  return pack_together({&weight}, context, keep_f32);
}

}  // namespace firstlight
