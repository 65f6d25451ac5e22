#include "checkpoint/packed_layout.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "checkpoint/mxfp4.h"

namespace firstlight {
namespace {

std::int64_t blocks(std::int64_t size, std::int64_t block) { return (size + block - 1) / block; }

/// The request's shape with another last dimension.
Shape with_columns(const WeightRequest& request, std::int64_t columns) {
  Shape shape = request.shape;
  if (!shape.empty()) shape.back() = columns;
  return shape;
}

std::int64_t columns_of(const WeightRequest& request) {
  return request.shape.empty() ? 1 : request.shape.back();
}

/// Rows or columns that share a scale: at most all there are, so that no sum or product with it overflows.
std::int64_t block_or_all(std::int64_t block, std::int64_t all) {
  return std::max<std::int64_t>(block == 0 ? all : std::min(block, all), 1);
}

/// All packed formats hold matrices, or stacks of them, row by row.
std::string refusal(const WeightRequest& request, std::int64_t group, std::string_view format) {
  const std::size_t fixed = request.part ? request.part->at.size() : 0;
  const bool matrix = request.shape.size() == fixed + 2 && !(request.part && request.part->transposed);
  if (matrix && columns_of(request) % group == 0) return {};
  return " before packing, which " + std::string(format) + " cannot hold (a matrix" +
         (group > 1 ? ", columns a multiple of " + std::to_string(group) : "") + ")";
}

PackedLayout fp8(const Checkpoint& checkpoint, const WeightRequest& request,
                 const Quantization& quantization) {
  PackedLayout layout{.format = WeightFormat::kFP8,
                      .codes = {request.name, {DType::kF8E4M3}, request.shape},
                      .scales = {request.name + "_scale_inv", {kPlainTypes.begin(), kPlainTypes.end()}, {}},
                      .refusal = refusal(request, 1, "FP8")};
  layout.scales.dtypes.push_back(DType::kF8E8M0);
  if (!checkpoint.index_of(layout.scales.name) && checkpoint.index_of(request.name + "_scale")) {
    layout.scales.name = request.name + "_scale";
  }
  if (!layout.refusal.empty()) return layout;
  const std::int64_t rows = request.shape[request.shape.size() - 2];
  const std::int64_t columns = columns_of(request);
  layout.block_rows = block_or_all(quantization.block_rows, rows);
  layout.block_columns = block_or_all(quantization.block_columns, columns);
  layout.scales.shape = with_columns(request, blocks(columns, layout.block_columns));
  layout.scales.shape[request.shape.size() - 2] = blocks(rows, layout.block_rows);
  if (request.shape.size() == 2 && layout.scales.shape == Shape{1, 1}) layout.scales.also = {{1}, {}};
  return layout;
}

PackedLayout mxfp4(const WeightRequest& request, const std::string& codes, const std::string& scales,
                   bool as_blocks) {
  PackedLayout layout{
      .format = WeightFormat::kMXFP4,
      .codes = {request.name + codes, {DType::kU8}, with_columns(request, columns_of(request) / 2)},
      .scales = {request.name + scales,
                 {DType::kU8, DType::kF8E8M0},
                 with_columns(request, columns_of(request) / kMXFP4Group)},
      .block_columns = kMXFP4Group,
      .refusal = refusal(request, kMXFP4Group, "MXFP4")};
  if (as_blocks) {  // the same bytes, one more dimension
    layout.codes.shape = layout.scales.shape;
    layout.codes.shape.push_back(kMXFP4Group / 2);
  }
  return layout;
}

PackedLayout packed_ints(const WeightRequest& request, const Quantization& quantization) {
  const std::int64_t columns = columns_of(request);
  const std::int64_t group = block_or_all(quantization.block_columns, columns);
  const std::int64_t bits = quantization.bits == 0 ? 4 : quantization.bits;
  PackedLayout layout{
      .format = WeightFormat::kInt,
      .codes = {request.name + "_packed", {DType::kI32}, with_columns(request, blocks(columns, 32 / bits))},
      .scales = {request.name + "_scale",
                 {kPlainTypes.begin(), kPlainTypes.end()},
                 with_columns(request, blocks(columns, group))},
      .shape = PackedLayout::Piece{request.name + "_shape",
                                   {DType::kI64, DType::kI32},
                                   {static_cast<std::int64_t>(request.shape.size())}},
      .block_columns = group,
      .refusal = refusal(request, group, "INT" + std::to_string(bits))};
  return layout;
}

}  // namespace

std::optional<PackedLayout> packed_layout(const Checkpoint& checkpoint, const WeightRequest& request,
                                          const Quantization& quantization) {
  const std::string& name = request.name;
  const auto has = [&](const char* suffix) { return checkpoint.find(name + suffix) != nullptr; };
  if (const TensorView* stored = checkpoint.find(name)) {
    if (stored->dtype == DType::kF8E4M3) return fp8(checkpoint, request, quantization);
    return std::nullopt;
  }
  if (has("_blocks") || has("_scales")) return mxfp4(request, "_blocks", "_scales", true);
  const TensorView* codes = checkpoint.find(name + "_packed");
  if (codes == nullptr && !has("_scale") && !has("_shape")) return std::nullopt;
  const bool ints = codes != nullptr ? codes->dtype == DType::kI32
                                     : has("_shape") || quantization.format == WeightFormat::kInt;
  return ints ? packed_ints(request, quantization) : mxfp4(request, "_packed", "_scale", false);
}

}  // namespace firstlight
