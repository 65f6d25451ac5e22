#include "base/tensor_part.h"

#include <span>
#include <utility>

namespace firstlight {
namespace {

/// The dimensions behind those that `at` fixes.
std::span<const std::int64_t> left(const TensorPart& part) {
  return std::span<const std::int64_t>(part.full).subspan(part.at.size());
}

}  // namespace

Result<TensorPart> make_part(Shape full, std::vector<std::int64_t> at, std::optional<RowChoice> rows,
                             bool transposed) {
  TensorPart part{.full = std::move(full), .at = std::move(at), .transposed = transposed};
  const std::string of = " of a tensor " + shape_text(part.full);
  if (part.at.size() >= part.full.size()) return Error{"at=" + shape_text(part.at) + of + " leaves no rows"};
  for (std::size_t i = 0; i < part.at.size(); ++i) {
    if (part.at[i] < 0 || part.at[i] >= part.full[i]) {
      return Error{"at=" + shape_text(part.at) + of + " lies outside of it"};
    }
  }
  if (transposed && left(part).size() != 2) {
    return Error{"at=" + shape_text(part.at) + of + " leaves no matrix to transpose"};
  }
  const std::int64_t all = slice_rows(part);
  const RowChoice chosen = rows.value_or(RowChoice{.first = 0, .count = all, .every = all});
  part.first = chosen.first;
  part.count = chosen.count;
  part.every = chosen.every == 0 ? all : chosen.every;
  const bool within = part.first >= 0 && part.count > 0 && part.every > 0 && part.every <= all &&
                      part.count <= part.every && part.first <= part.every - part.count;
  if (!within || all % part.every != 0) {
    return Error{"rows=(" + std::to_string(chosen.first) + ", " + std::to_string(chosen.count) + ", " +
                 std::to_string(chosen.every) + ")" + of + " do not fit its " + std::to_string(all) +
                 " rows: first + count must be at most every, and every must divide them"};
  }
  return part;
}

std::int64_t slice_rows(const TensorPart& part) { return left(part)[part.transposed ? 1 : 0]; }

std::int64_t slice_index(const TensorPart& part) {
  std::int64_t index = 0;
  for (std::size_t i = 0; i < part.at.size(); ++i) index = index * part.full[i] + part.at[i];
  return index;
}

std::int64_t slice_count(const TensorPart& part) {
  return element_count(std::span<const std::int64_t>(part.full).first(part.at.size()));
}

Shape part_shape(const TensorPart& part) {
  Shape shape = {slice_rows(part) / part.every * part.count};
  if (part.transposed) {
    shape.push_back(left(part)[0]);
  } else {
    for (const std::int64_t d : left(part).subspan(1)) shape.push_back(d);
  }
  return shape;
}

std::string part_text(const TensorPart& part) {
  std::string text;
  for (const std::int64_t i : part.at) text += "[" + std::to_string(i) + "]";
  if (part.transposed) text += ".T";
  const std::int64_t all = slice_rows(part);
  if (part.count == all) return text;
  text += ".rows(" + std::to_string(part.first) + ", " + std::to_string(part.count);
  if (part.every != all) text += ", " + std::to_string(part.every);
  return text + ")";
}

}  // namespace firstlight
