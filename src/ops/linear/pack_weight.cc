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

HeldAs common_form(const std::vector<const WeightSource*>& weights) {
  const HeldAs first = weights[0]->stored_form();
  const bool all =
      std::ranges::all_of(weights, [&](const WeightSource* w) { return w->stored_form() == first; });
  return all ? first : HeldAs::kStored;
}

}  // namespace

HeldAs held_form(HeldAs asked, HeldAs stored) {
  if (stored == HeldAs::kInt4 || stored == HeldAs::kMxfp4) return stored;
  return asked == HeldAs::kStored ? stored : asked;
}

HeldAs held_in_bytes(HeldAs asked, HeldAs stored) {
  const HeldAs held = held_form(asked == HeldAs::kInt8 ? asked : HeldAs::kStored, stored);
  return held == HeldAs::kInt8 ? held : HeldAs::kStored;
}

Packing packing_of(HeldAs held, bool exact_in_bf16, bool f32, bool keep_f32) {
  if (!f32 && !keep_f32) {
    if (held == HeldAs::kInt8) return Packing::kInt8;
    if (held == HeldAs::kInt4) return Packing::kInt4;
    if (held == HeldAs::kMxfp4) return Packing::kMxfp4;
  }
  return packed_as(exact_in_bf16 ? DType::kBF16 : DType::kF32, f32 ? Arithmetic::kF32 : Arithmetic::kBF16,
                   keep_f32);
}

Result<PackedMatrix> pack_together(const std::vector<const WeightSource*>& weights,
                                   const KernelContext& context, HeldAs held, bool keep_f32) {
  const std::int64_t columns = weights[0]->elements() / weights[0]->rows();
  const bool exact = std::ranges::all_of(weights, &WeightSource::exact_in_bf16);
  const HeldAs form = context.f32 || keep_f32 ? HeldAs::kStored : common_form(weights);
  const Packing target = packing_of(held_form(held, form), exact, context.f32, keep_f32);
  // A row source cannot fail, a weight can (a scale that is not a number): the first failure in the order of
  // rows is kept, whichever thread meets it.
  FirstFailure failure;
  std::vector<RowSource> sources;
  std::int64_t before = 0;
  StoredAs as{.store = context.store};
  for (const WeightSource* weight : weights) {
    as.rows += (as.rows.empty() ? "" : " + ") + weight->name();
    const auto read = [&failure, weight, columns, before](std::int64_t row, float* out) {
      if (Status s = weight->read_rows(row, 1, out); !s.ok()) {
        std::fill_n(out, columns, 0.0F);
        failure.keep(before + row, std::move(s));
      }
    };
    RowSource source{.rows = weight->rows(), .read = read};
    if (packing_of(form, exact, context.f32, keep_f32) == target && form != HeldAs::kStored) {
      source.codes = [&failure, weight, before](std::int64_t row, std::int8_t* codes, std::uint8_t* scales) {
        const Result<bool> given = weight->read_codes(row, codes, scales);
        if (!given.ok()) failure.keep(before + row, Status(given.error()));
        return given.ok() && *given;
      };
    }
    if (target == Packing::kF32 || target == Packing::kBF16) {
      const DType type = target == Packing::kF32 ? DType::kF32 : DType::kBF16;
      source.stored = [weight, type](std::int64_t row) { return weight->stored_row(row, type); };
    }
    sources.push_back(std::move(source));
    before += weight->rows();
  }
  Result<PackedMatrix> packed = pack(sources, columns, target, context.pool, as);
  for (const WeightSource* weight : weights) weight->release();
  if (!failure.status().ok()) return Error{failure.status().error()};
  if (!packed.ok()) return Error{weights[0]->name() + ": " + packed.error().message};
  return packed;
}

Result<PackedMatrix> pack_weight(const WeightSource& weight, const KernelContext& context, HeldAs held,
                                 bool keep_f32) {
  return pack_together({&weight}, context, held, keep_f32);
}

}  // namespace firstlight
