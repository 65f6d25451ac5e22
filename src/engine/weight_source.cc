#include "engine/weight_source.h"

#include <utility>

namespace firstlight {
namespace {

class CheckpointWeight final : public WeightSource {
 public:
  explicit CheckpointWeight(WeightData data) : data_(std::move(data)), exact_(is_exact_in_bf16(data_)) {}

  [[nodiscard]] const std::string& name() const override { return data_.name; }
  [[nodiscard]] const Shape& shape() const override { return data_.shape; }
  [[nodiscard]] bool exact_in_bf16() const override { return exact_; }
  Status read_rows(std::int64_t begin, std::int64_t count, float* out) const override {
    return read_rows_f32(data_, begin, count, out);
  }

 private:
  WeightData data_;
  bool exact_;
};

}  // namespace

std::unique_ptr<WeightSource> make_weight_source(WeightData data) {
  return std::make_unique<CheckpointWeight>(std::move(data));
}

}  // namespace firstlight
