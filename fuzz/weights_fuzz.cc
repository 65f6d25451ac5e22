// Any safetensors file, asked for the weights that its names and shapes suggest, in parts or whole, binds or
// gives one Error; every row of a bound weight can be read or gives one Error, and bf16 is f32 rounded.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/weights.h"

namespace {

using namespace firstlight;

/// Decisions, taken from the input until it is used up.
class Choices {
 public:
  Choices(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  std::int64_t below(std::int64_t n) { return at_ < size_ ? data_[at_++] % n : 0; }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
  std::size_t at_ = 0;
};

bool strip(std::string& name, std::string_view suffix) {
  if (!name.ends_with(suffix)) return false;
  name.resize(name.size() - suffix.size());
  return true;
}

/// The weight to which a tensor seems to belong; no name for scales and the like.
WeightRequest guess(const NamedTensor& tensor, const Quantization& quantization) {
  WeightRequest wanted;
  wanted.name = tensor.name;
  Shape shape = tensor.view.shape;
  for (const std::int64_t d : shape) {
    if (d <= 0 || d >= 4096) return {};  // model files declare positive sizes
  }
  if (strip(wanted.name, "_packed") && !shape.empty()) {
    shape.back() *= tensor.view.dtype == DType::kI32 ? 32 / quantization.bits : 2;
  } else if (strip(wanted.name, "_blocks") && shape.size() > 1) {
    shape.pop_back();
    shape.back() *= 32;
  } else if (strip(wanted.name, "_scale") || strip(wanted.name, "_scale_inv") ||
             strip(wanted.name, "_scales") || strip(wanted.name, "_shape")) {
    return {};
  }
  wanted.shape = shape;
  return wanted;
}

void read(const WeightData& weight) {
  const std::int64_t width = weight_row_elements(weight);
  std::vector<float> f32(static_cast<std::size_t>(width));
  std::vector<std::uint16_t> bf16(f32.size());
  const bool exact = is_exact_in_bf16(weight);
  if (stored_bytes(weight) <= 0) std::abort();
  for (std::int64_t row = 0; row < weight_rows(weight); ++row) {
    const bool ok = read_rows_f32(weight, row, 1, f32.data()).ok();
    if (ok != read_rows_bf16(weight, row, 1, bf16.data()).ok()) std::abort();
    for (std::size_t k = 0; ok && k < f32.size(); ++k) {
      if (bf16[k] != f32_to_bf16(f32[k]) && f32[k] == f32[k]) std::abort();
      if (exact && f32[k] == f32[k] && bf16_to_f32(bf16[k]) != f32[k]) std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kChoices = 16;
  if (size < kChoices) return 0;
  Choices choices(data, kChoices);
  Quantization quantization;
  quantization.format = std::vector{WeightFormat::kPlain, WeightFormat::kFP8, WeightFormat::kInt,
                                    WeightFormat::kMXFP4}[static_cast<std::size_t>(choices.below(4))];
  quantization.block_rows = choices.below(5);
  quantization.block_columns = choices.below(40);
  quantization.bits = choices.below(2) == 0 ? 4 : 8;
  const auto checkpoint = Checkpoint::in_memory({data + kChoices, size - kChoices}, "fuzz");
  if (!checkpoint.ok()) return 0;

  std::vector<WeightRequest> requests;
  for (const Checkpoint::Entry& entry : checkpoint->entries()) {
    WeightRequest wanted = guess({entry.name, entry.view}, quantization);
    if (wanted.name.empty()) continue;
    // Parts as a model file may have them: every slice, whole or as two interleaved halves.
    const auto fixed = static_cast<std::size_t>(choices.below(3));
    if (fixed == 0 || fixed >= wanted.shape.size() || element_count(wanted.shape) > 4096) {
      requests.push_back(wanted);
      continue;
    }
    const bool transposed = choices.below(2) == 1;
    const bool halves = choices.below(2) == 1;
    const std::int64_t slices = element_count(std::span(wanted.shape).first(fixed));
    for (std::int64_t slice = 0; slice < slices; ++slice) {
      std::vector<std::int64_t> at(fixed);
      std::int64_t rest = slice;
      for (std::size_t i = fixed; i-- > 0; rest /= wanted.shape[i]) at[i] = rest % wanted.shape[i];
      for (std::int64_t first = 0; first < (halves ? 2 : 1); ++first) {
        const auto rows =
            halves ? std::optional<RowChoice>({.first = first, .count = 1, .every = 2}) : std::nullopt;
        auto part = make_part(wanted.shape, at, rows, transposed);
        if (!part.ok()) continue;
        wanted.part = std::move(*part);
        requests.push_back(wanted);
      }
    }
  }
  const auto bound = bind_weights(*checkpoint, requests, {}, quantization);
  if (!bound.ok()) return 0;
  for (const WeightData& weight : bound->weights) read(weight);
  return 0;
}
