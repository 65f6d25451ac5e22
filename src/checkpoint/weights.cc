#include "checkpoint/weights.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "base/json_limits.h"
#include "checkpoint/mxfp4.h"
#include "checkpoint/name_hint.h"
#include "checkpoint/part_coverage.h"
#include "checkpoint/problem_list.h"

namespace firstlight {

namespace {

std::string dtype_list(const std::vector<DType>& dtypes) {
  std::string text;
  for (const DType t : dtypes) text += (text.empty() ? "" : " or ") + std::string(dtype_name(t));
  return text;
}

/// Binds requests one by one and remembers what went wrong and what was used.
class Binder {
 public:
  explicit Binder(const Checkpoint& checkpoint)
      : checkpoint_(checkpoint),
        used_(checkpoint.entries().size(), false),
        dtype_reported_(used_),
        shape_reported_(used_) {}

  WeightData bind(const WeightRequest& request) {
    WeightData weight;
    weight.name = request.name;
    weight.shape = request.shape;
    if (request.part) take_part(*request.part, weight);
    if (const auto* entry = use(request.name)) {
      bind_plain(request, *entry, weight);
    } else if (request.allow_mxfp4 && std::string_view(request.name).ends_with(".weight") &&
               (checkpoint_.index_of(request.name + "_packed") ||
                checkpoint_.index_of(request.name + "_scale"))) {
      bind_mxfp4(request, weight);
    } else {
      miss(request.name);
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
        if (near.empty()) near = nearest_name(name + "_packed", unread_names_);
        if (!near.empty()) item += " (did you mean " + quote_text(near) + "?)";
      }
      missing.add(item);
    }
    const std::string lines = missing.line() + unread_.line() + shapes_.line() + dtypes_.line() +
                              padding_.line() + unread_rows().line();
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
    weight.rows = {.slice = slice_index(part),
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
    if (std::find(request.dtypes.begin(), request.dtypes.end(), entry.view.dtype) == request.dtypes.end() &&
        is_first(dtype_reported_, entry)) {
      dtypes_.add(quote_text(entry.name) + " is " + std::string(dtype_name(entry.view.dtype)) +
                  ", expected " + dtype_list(request.dtypes) + " in " + checkpoint_.file_of(entry));
    }
    if (!shape_fits(request, entry.view.shape)) {
      report_shape(entry, request.shape, padding_remark(request));
      return;
    }
    cover(request);
    weight.plain = {entry.view.dtype, request.shape, entry.view.data};
    const std::int64_t kept = weight.plain.bytes();
    const std::uint8_t* const data = entry.view.data;
    if (std::any_of(data + kept, data + entry.view.bytes(), [](std::uint8_t b) { return b != 0; })) {
      padding_.add(quote_text(entry.name) + " has " + shape_text(entry.view.shape) + ", the model uses " +
                   shape_text(request.shape) + " in " + checkpoint_.file_of(entry));
    }
  }

  void bind_mxfp4(const WeightRequest& request, WeightData& weight) {
    const Checkpoint::Entry* const packed = use(request.name + "_packed");
    const Checkpoint::Entry* const scale = use(request.name + "_scale");
    check(packed != nullptr || scale != nullptr, "a packed weight of which nothing is stored");
    if (packed == nullptr) miss(request.name + "_packed");
    if (scale == nullptr) miss(request.name + "_scale");
    for (const Checkpoint::Entry* part : {packed, scale}) {
      if (part == nullptr || part->view.dtype == DType::kU8 || !is_first(dtype_reported_, *part)) continue;
      dtypes_.add(quote_text(part->name) + " is " + std::string(dtype_name(part->view.dtype)) +
                  ", MXFP4 needs U8, in " + checkpoint_.file_of(*part));
    }
    if (weight.shape.size() != 2 || weight.rows.transposed || request.shape.back() % kMXFP4Group != 0) {
      report_shape(packed != nullptr ? *packed : *scale, request.shape,
                   " before packing, which MXFP4 cannot hold (a matrix, columns a multiple of 32)");
      return;
    }
    Shape packed_shape = request.shape;
    Shape scale_shape = request.shape;
    packed_shape.back() /= 2;
    scale_shape.back() /= kMXFP4Group;
    const bool fits = (packed != nullptr && has_shape(*packed, packed_shape)) &
                      (scale != nullptr && has_shape(*scale, scale_shape));
    if (!fits) return;
    cover(request);
    weight.format = WeightData::Format::kMXFP4;
    weight.packed = packed->view;
    weight.scale = scale->view;
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

  bool has_shape(const Checkpoint::Entry& entry, const Shape& expected) {
    if (entry.view.shape == expected) return true;
    report_shape(entry, expected, "");
    return false;
  }

  void report_shape(const Checkpoint::Entry& entry, const Shape& expected, const std::string& remark) {
    if (!is_first(shape_reported_, entry)) return;
    shapes_.add(quote_text(entry.name) + " has " + shape_text(entry.view.shape) + ", expected " +
                shape_text(expected) + remark + " in " + checkpoint_.file_of(entry));
  }

  const Checkpoint& checkpoint_;
  std::vector<bool> used_;            // by entry
  std::vector<bool> dtype_reported_;  // by entry
  std::vector<bool> shape_reported_;  // by entry
  std::vector<std::string> missing_;
  std::set<std::string> missed_;
  std::set<std::string> whole_;                   // tensors that a request takes whole
  std::map<std::string, PartCoverage> coverage_;  // of tensors that are taken in parts
  std::vector<std::string_view> unread_names_;
  ProblemList unread_{"tensors that the model does not use"};
  ProblemList shapes_{"tensors of another shape"};
  ProblemList dtypes_{"tensors of another type"};
  ProblemList padding_{"tensors whose extra rows are not zero"};
};

}  // namespace

Result<BoundWeights> bind_weights(const Checkpoint& checkpoint, const std::vector<WeightRequest>& requests,
                                  const std::vector<IgnoredPrefix>& ignored) {
  Binder binder(checkpoint);
  BoundWeights bound;
  bound.weights.reserve(requests.size());
  for (const WeightRequest& request : requests) {
    for (const Shape& other : request.also_accept) {
      check(element_count(other) == element_count(request.shape), "also_accept holds the same elements");
    }
    bound.weights.push_back(binder.bind(request));
  }
  binder.account(ignored, bound.notices);
  FL_TRY(binder.finish());
  return bound;
}

}  // namespace firstlight
