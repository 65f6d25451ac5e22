#include "checkpoint/weights.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <span>
#include <string_view>

#include "base/json_limits.h"
#include "checkpoint/name_hint.h"
#include "checkpoint/name_pattern.h"
#include "checkpoint/packed_layout.h"
#include "checkpoint/part_coverage.h"
#include "checkpoint/problem_list.h"

namespace firstlight {

namespace {

std::string dtype_list(std::span<const DType> dtypes) {
  std::string text;
  for (const DType t : dtypes) text += (text.empty() ? "" : " or ") + std::string(dtype_name(t));
  return text;
}

/// Whether the tensor is there, plain or in pieces that a packed format names after it.
bool holds(const Checkpoint& checkpoint, const std::string& name) {
  if (checkpoint.index_of(name)) return true;
  const auto entries = checkpoint.entries();
  const std::string pieces = name + "_";
  const auto at = std::partition_point(entries.begin(), entries.end(),
                                       [&](const Checkpoint::Entry& entry) { return entry.name < pieces; });
  return at != entries.end() && at->name.starts_with(pieces);
}

/// The request for the other tensor, where only that is stored.
std::optional<WeightRequest> other_request(const Checkpoint& checkpoint, const WeightRequest& request) {
  if (!request.or_part || holds(checkpoint, request.name) || !holds(checkpoint, request.or_part->name))
    return {};
  WeightRequest other = request;
  other.name = request.or_part->name;
  other.part = request.or_part->part;
  other.shape = other.part->full;
  other.also_accept.clear();
  other.padded_rows = 0;
  other.or_part.reset();
  return other;
}

/// Binds requests one by one and remembers what went wrong and what was used.
class Binder {
 public:
  Binder(const Checkpoint& checkpoint, const Quantization& quantization, ModuleList not_converted)
      : checkpoint_(checkpoint),
        quantization_(quantization),
        not_converted_(std::move(not_converted)),
        used_(checkpoint.entries().size(), false),
        dtype_reported_(used_),
        shape_reported_(used_),
        format_reported_(used_) {}

  WeightData bind(const WeightRequest& request) {
    WeightData weight;
    weight.name = request.name;
    weight.shape = request.shape;
    if (request.part) take_part(*request.part, weight);
    if (const auto layout = packed_layout(checkpoint_, request, quantization_)) {
      bind_packed(request, *layout, weight);
    } else if (const auto* entry = use(request.name)) {
      bind_plain(request, *entry, weight);
    } else {
      miss(request.name);
      if (request.or_part) missed_parts_[request.name] = request.or_part->name;
    }
    return weight;
  }

  /// What was not used: on purpose (counted into notices), or not.
  void account(const std::vector<IgnoredPrefix>& ignored, std::vector<std::string>& notices) {
    std::vector<std::size_t> counts(ignored.size());
    std::vector<std::int64_t> bytes(ignored.size());
    const auto entries = checkpoint_.entries();
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (used_[i]) continue;
      const auto rule = std::find_if(ignored.begin(), ignored.end(), [&](const IgnoredPrefix& p) {
        return entries[i].name.starts_with(p.prefix);
      });
      if (rule == ignored.end()) {
        unread_names_.push_back(entries[i].name);
        unread_.add(quote_text(entries[i].name) + " in " + checkpoint_.file_of(entries[i]));
      } else {
        const auto r = static_cast<std::size_t>(rule - ignored.begin());
        if (!rule->copy_of.empty()) check_copy(entries[i], rule->copy_of);
        ++counts[r];
        bytes[r] += entries[i].view.bytes();
      }
    }
    for (std::size_t r = 0; r < ignored.size(); ++r) {
      if (counts[r] == 0) continue;
      notices.push_back(std::to_string(counts[r]) + " tensors (" + std::to_string(bytes[r]) +
                        " bytes) under " + quote_text(ignored[r].prefix) +
                        " are not used: " + ignored[r].reason);
    }
  }

  /// All problems, or success. Call after account().
  [[nodiscard]] Status finish() const {
    ProblemList missing("missing tensors");
    for (const std::string& name : missing_) {
      std::string item = quote_text(name);
      if (missing.shows_next()) {  // a search through all unread names
        std::string_view near = nearest_name(name, unread_names_);
        for (const char* suffix : {"_packed", "_blocks"}) {
          if (near.empty()) near = nearest_name(name + suffix, unread_names_);
        }
        if (const auto part = missed_parts_.find(name); part != missed_parts_.end()) {
          item += ", or " + quote_text(part->second) + " with it";
        }
        if (!near.empty()) item += " (did you mean " + quote_text(near) + "?)";
      }
      missing.add(item);
    }
    const std::string lines = missing.line() + unread_.line() + shapes_.line() + dtypes_.line() +
                              formats_.line() + padding_.line() + copies_.line() + unread_rows().line();
    if (lines.empty() && packed_ == 0 && quantization_.format != WeightFormat::kPlain) {
      return Error{checkpoint_.folder() + ": config.json declares `quantization_config` (" +
                   std::string(format_name(quantization_.format)) +
                   "), but no tensor of the checkpoint is stored so"};
    }
    if (lines.empty()) return {};
    return Error{checkpoint_.folder() + ": the tensors do not fit the model:" + lines};
  }

 private:
  const Checkpoint::Entry* use(const std::string& name) {
    const auto index = checkpoint_.index_of(name);
    if (!index) return nullptr;
    used_[*index] = true;
    return &checkpoint_.entries()[*index];
  }

  /// A tensor that is left out because it repeats another one must really do so.
  void check_copy(const Checkpoint::Entry& entry, const std::string& name) {
    const auto index = checkpoint_.index_of(name);
    if (!index) return;  // reported as missing
    const TensorView& a = entry.view;
    const TensorView& b = checkpoint_.entries()[*index].view;
    if (a.dtype == b.dtype && a.shape == b.shape && std::equal(a.data, a.data + a.bytes(), b.data)) return;
    copies_.add(quote_text(entry.name) + " is not " + quote_text(name) + ", in " +
                checkpoint_.file_of(entry));
  }

  /// Many parts ask for the same tensor: each is reported once.
  void miss(const std::string& name) {
    if (missed_.insert(name).second) missing_.push_back(name);
  }
  bool is_first(std::vector<bool>& reported, const Checkpoint::Entry& entry) const {
    const auto i = static_cast<std::size_t>(&entry - checkpoint_.entries().data());
    const bool first = !reported[i];
    reported[i] = true;
    return first;
  }

  static void take_part(const TensorPart& part, WeightData& weight) {
    weight.name += part_text(part);
    weight.shape = part_shape(part);
    weight.rows = {.slices = slice_count(part),
                   .slice = slice_index(part),
                   .slice_rows = slice_rows(part),
                   .first = part.first,
                   .count = part.count,
                   .every = part.every,
                   .transposed = part.transposed};
  }

  /// Counts the rows that a request takes, once its tensor has been found to have that shape.
  void cover(const WeightRequest& request) {
    if (!request.part) {
      whole_.insert(request.name);
    } else {
      coverage_.try_emplace(request.name, *request.part).first->second.add(*request.part);
    }
  }

  [[nodiscard]] ProblemList unread_rows() const {
    ProblemList problems("tensors of which the model does not use all rows");
    for (const auto& [name, coverage] : coverage_) {
      if (whole_.contains(name)) continue;
      if (const std::string gap = coverage.gap(); !gap.empty()) problems.add(quote_text(name) + ": " + gap);
    }
    return problems;
  }

  void bind_plain(const WeightRequest& request, const Checkpoint::Entry& entry, WeightData& weight) {
    if (std::find(kPlainTypes.begin(), kPlainTypes.end(), entry.view.dtype) == kPlainTypes.end() &&
        is_first(dtype_reported_, entry)) {
      dtypes_.add(quote_text(entry.name) + " is " + std::string(dtype_name(entry.view.dtype)) +
                  ", expected " + dtype_list(kPlainTypes) + " in " + checkpoint_.file_of(entry));
    }
    if (!shape_fits(request, entry.view.shape)) {
      report_shape(entry, request.shape, padding_remark(request));
      return;
    }
    cover(request);
    weight.data = {entry.view.dtype, request.shape, entry.view.data};
    const std::int64_t kept = weight.data.bytes();
    const std::uint8_t* const data = entry.view.data;
    if (std::any_of(data + kept, data + entry.view.bytes(), [](std::uint8_t b) { return b != 0; })) {
      padding_.add(quote_text(entry.name) + " has " + shape_text(entry.view.shape) + ", the model uses " +
                   shape_text(request.shape) + " in " + checkpoint_.file_of(entry));
    }
  }

  void bind_packed(const WeightRequest& request, const PackedLayout& layout, WeightData& weight) {
    const Checkpoint::Entry* const codes = use(layout.codes.name);
    const Checkpoint::Entry* const scales = use(layout.scales.name);
    const Checkpoint::Entry* const shape = layout.shape ? use(layout.shape->name) : nullptr;
    const Checkpoint::Entry& any = *(codes != nullptr ? codes : scales != nullptr ? scales : shape);
    if (const std::string problem = undeclared(request.name, layout); !problem.empty()) {
      if (is_first(format_reported_, any)) formats_.add(problem + " in " + checkpoint_.file_of(any));
      return;
    }
    if (!layout.refusal.empty()) {
      report_shape(any, request.shape, layout.refusal);
      return;
    }
    bool fits = fits_piece(layout.codes, codes);
    fits = fits_piece(layout.scales, scales) && fits;
    fits = (!layout.shape || (fits_piece(*layout.shape, shape) && says_shape(*shape, request.shape))) && fits;
    if (!fits) return;
    ++packed_;
    cover(request);
    weight.format = layout.format;
    weight.data = codes->view;
    weight.scale = scales->view;
    weight.block_rows = layout.block_rows;
    weight.block_columns = layout.block_columns;
    weight.bits = quantization_.bits;
    if (!request.part) weight.rows.slice_rows = request.shape.front();
  }

  /// What is wrong with a weight being stored in this format at all, or nothing.
  [[nodiscard]] std::string undeclared(const std::string& name, const PackedLayout& layout) const {
    const std::string stored = quote_text(name) + " is stored as " + std::string(format_name(layout.format));
    if (quantization_.format == WeightFormat::kPlain) {
      return stored + ", but config.json has no `quantization_config`";
    }
    if (layout.format != quantization_.format) {
      return stored + ", but `quantization_config` declares " +
             std::string(format_name(quantization_.format));
    }
    const std::string* const entry = not_converted_.covering(name);
    if (entry != nullptr) return stored + ", but `quantization_config` excludes " + quote_text(*entry);
    return {};
  }

  bool fits_piece(const PackedLayout::Piece& piece, const Checkpoint::Entry* entry) {
    if (entry == nullptr) {
      miss(piece.name);
      return false;
    }
    const DType dtype = entry->view.dtype;
    const bool known = std::find(piece.dtypes.begin(), piece.dtypes.end(), dtype) != piece.dtypes.end();
    if (!known && is_first(dtype_reported_, *entry)) {
      dtypes_.add(quote_text(entry->name) + " is " + std::string(dtype_name(dtype)) + ", expected " +
                  dtype_list(piece.dtypes) + " in " + checkpoint_.file_of(*entry));
    }
    const Shape& found = entry->view.shape;
    const bool fits =
        found == piece.shape || std::find(piece.also.begin(), piece.also.end(), found) != piece.also.end();
    if (!fits) report_shape(*entry, piece.shape, "");
    return known && fits;
  }

  /// Whether the tensor "X.weight_shape" repeats the shape of the weight.
  bool says_shape(const Checkpoint::Entry& entry, const Shape& expected) {
    Shape said;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      std::int64_t wide = 0;
      std::int32_t narrow = 0;
      if (entry.view.dtype == DType::kI64) {
        std::memcpy(&wide, entry.view.data + 8 * i, 8);
      } else {
        std::memcpy(&narrow, entry.view.data + 4 * i, 4);
        wide = narrow;
      }
      said.push_back(wide);
    }
    if (said == expected) return true;
    if (is_first(shape_reported_, entry)) {
      shapes_.add(quote_text(entry.name) + " says " + shape_text(said) + ", expected " +
                  shape_text(expected) + " in " + checkpoint_.file_of(entry));
    }
    return false;
  }

  static std::string padding_remark(const WeightRequest& request) {
    return request.padded_rows == 0 ? "" : " or " + std::to_string(request.padded_rows) + " rows";
  }

  static bool shape_fits(const WeightRequest& request, const Shape& found) {
    const auto fits = [&](const Shape& wanted) {
      if (found == wanted) return true;
      return found.size() == wanted.size() && !found.empty() && found[0] == request.padded_rows &&
             found[0] > wanted[0] && std::equal(found.begin() + 1, found.end(), wanted.begin() + 1);
    };
    return fits(request.shape) || std::any_of(request.also_accept.begin(), request.also_accept.end(), fits);
  }

  void report_shape(const Checkpoint::Entry& entry, const Shape& expected, const std::string& remark) {
    if (!is_first(shape_reported_, entry)) return;
    shapes_.add(quote_text(entry.name) + " has " + shape_text(entry.view.shape) + ", expected " +
                shape_text(expected) + remark + " in " + checkpoint_.file_of(entry));
  }

  const Checkpoint& checkpoint_;
  const Quantization& quantization_;
  ModuleList not_converted_;
  std::int64_t packed_ = 0;            // weights found in the packed format
  std::vector<bool> used_;             // by entry
  std::vector<bool> dtype_reported_;   // by entry
  std::vector<bool> shape_reported_;   // by entry
  std::vector<bool> format_reported_;  // by entry
  std::vector<std::string> missing_;
  std::set<std::string> missed_;
  std::map<std::string, std::string, std::less<>> missed_parts_;  // where a missing tensor could be a part
  std::set<std::string> whole_;                                   // tensors that a request takes whole
  std::map<std::string, PartCoverage> coverage_;                  // of tensors that are taken in parts
  std::vector<std::string_view> unread_names_;
  ProblemList unread_{"tensors that the model does not use"};
  ProblemList shapes_{"tensors of another shape"};
  ProblemList dtypes_{"tensors of another type"};
  ProblemList formats_{"tensors of a format that config.json does not declare"};
  ProblemList padding_{"tensors whose extra rows are not zero"};
  ProblemList copies_{"tensors that config.json calls copies of others (tied weights), and are not"};
};

}  // namespace

Result<BoundWeights> bind_weights(const Checkpoint& checkpoint, const std::vector<WeightRequest>& requests,
                                  const std::vector<IgnoredPrefix>& ignored,
                                  const Quantization& quantization) {
  FL_ASSIGN(ModuleList not_converted, ModuleList::create(quantization.not_converted));
  Binder binder(checkpoint, quantization, std::move(not_converted));
  BoundWeights bound;
  bound.weights.reserve(requests.size());
  for (const WeightRequest& request : requests) {
    for (const Shape& other : request.also_accept) {
      check(element_count(other) == element_count(request.shape), "also_accept holds the same elements");
    }
    const std::optional<WeightRequest> other = other_request(checkpoint, request);
    bound.weights.push_back(binder.bind(other ? *other : request));
  }
  binder.account(ignored, bound.notices);
  FL_TRY(binder.finish());
  return bound;
}

}  // namespace firstlight
