#include "engine/weight_source.h"

#include <utility>
#include <vector>

namespace firstlight {
namespace {

class CheckpointWeight final : public WeightSource {
 public:
  CheckpointWeight(WeightData data, std::function<void(const WeightData&)> released)
      : data_(std::move(data)),
        exact_(is_exact_in_bf16(data_)),
        has_codes_(has_row_codes(data_)),
        released_(std::move(released)) {}

  [[nodiscard]] const std::string& name() const override { return data_.name; }
  [[nodiscard]] const Shape& shape() const override { return data_.shape; }
  [[nodiscard]] bool exact_in_bf16() const override { return exact_; }
  Status read_rows(std::int64_t begin, std::int64_t count, float* out) const override {
    return read_rows_f32(data_, begin, count, out);
  }
  [[nodiscard]] const std::uint8_t* stored_row(std::int64_t row, DType type) const override {
    return firstlight::stored_row(data_, row, type);
  }
  [[nodiscard]] HeldAs stored_form() const override {
    if (!has_codes_) return HeldAs::kStored;
    return data_.format == WeightFormat::kMXFP4 ? HeldAs::kMxfp4
           : data_.bits == 4                    ? HeldAs::kInt4
                                                : HeldAs::kInt8;
  }
  Result<bool> read_codes(std::int64_t row, std::int8_t* codes, std::uint8_t* scales) const override {
    FL_TRY(read_row_codes(data_, row, codes, scales));
    return true;
  }
  [[nodiscard]] bool reading_may_fail() const override { return data_.format != WeightFormat::kPlain; }
  void release() const override { released_(data_); }

 private:
  WeightData data_;
  bool exact_;
  bool has_codes_;
  std::function<void(const WeightData&)> released_;
};

}  // namespace

Result<BoundWeights> bind_graph(const Graph& graph, const Checkpoint& checkpoint) {
  std::vector<WeightRequest> requests;
  for (const WeightDecl& w : graph.weights()) {
    requests.push_back({.name = w.name,
                        .shape = w.part ? w.part->full : w.shape,
                        .also_accept = w.also,
                        .padded_rows = w.padded,
                        .part = w.part,
                        .or_part = w.or_part});
  }
  std::vector<IgnoredPrefix> ignored;
  for (const NotComputed& n : graph.not_computed()) ignored.push_back({n.prefix, n.reason, n.copy_of});
  return bind_weights(checkpoint, requests, ignored, graph.quantization());
}

std::unique_ptr<WeightSource> make_weight_source(WeightData data,
                                                 std::function<void(const WeightData&)> released) {
  return std::make_unique<CheckpointWeight>(std::move(data), std::move(released));
}

}  // namespace firstlight
