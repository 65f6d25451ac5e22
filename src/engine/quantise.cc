#include "engine/quantise.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/json_limits.h"
#include "base/memory_limit.h"
#include "base/processors.h"
#include "base/thread_pool.h"
#include "checkpoint/folder_listing.h"
#include "checkpoint/mxfp4.h"
#include "device/cpu/quantise.h"
#include "engine/held_form.h"
#include "engine/weight_source.h"

namespace firstlight {
namespace {

constexpr std::string_view kWeightSuffix = ".weight";
/// Floats of rows that are rounded at once, a thread.
constexpr std::int64_t kBlockElements = std::int64_t{1} << 20;

std::string_view form_name(HeldAs form) {
  return form == HeldAs::kInt8 ? "int8" : form == HeldAs::kInt4 ? "int4" : "mxfp4";
}

/// What is asked for a tensor by all that read it.
struct Wish {
  HeldAs form = HeldAs::kStored;
  bool other = false;  // is read in other ways too
};

/// By entry of the checkpoint. A tensor whose parts go to different uses has all of their wishes.
std::vector<Wish> wishes_of(const Graph& graph, const Checkpoint& checkpoint, const BoundWeights& bound,
                            const QuantiseOptions& options) {
  std::map<const std::uint8_t*, std::size_t> entry_at;
  const auto entries = checkpoint.entries();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].view.bytes() > 0) entry_at[entries[i].view.data] = i;
  }
  std::vector<Wish> wishes(entries.size());
  const RunSettings settings{.weights = options.weights, .experts = options.experts};
  each_weight(graph, [&](std::size_t weight, const Node& node, std::string_view slot) {
    const WeightData& data = bound.weights[weight];
    const auto entry = entry_at.find(data.data.data);
    if (entry == entry_at.end()) return;
    Wish& wish = wishes[entry->second];
    const HeldAs form = held_form(graph, node, slot, HeldAs::kStored, settings);
    if (form != HeldAs::kStored) wish.form = form;
    wish.other = wish.other || form == HeldAs::kStored || data.rows.transposed;
  });
  return wishes;
}

/// Why the tensor cannot be written in that form, or nothing.
std::string obstacle(const Checkpoint::Entry& entry, const Wish& wish) {
  const Shape& shape = entry.view.shape;
  if (wish.other) return "something else reads it too, or it is stored transposed";
  if (shape.size() != 2) return "it is a stack of matrices, which the layout has no room for";
  if (!entry.name.ends_with(kWeightSuffix)) return "it is not the `weight` of a module";
  if (wish.form != HeldAs::kInt8 && shape[1] % kWeightGroup != 0)
    return "its " + std::to_string(shape[1]) + " columns are not a multiple of " +
           std::to_string(kWeightGroup);
  return {};
}

std::int64_t blocks(std::int64_t size, std::int64_t block) { return (size + block - 1) / block; }

/// The tensors that hold a matrix of that shape, codes first, scales second.
std::vector<NamedTensor> pieces(const Checkpoint::Entry& entry, HeldAs form) {
  if (form == HeldAs::kStored) return {{entry.name, entry.view}};
  const std::int64_t n = entry.view.shape[0];
  const std::int64_t k = entry.view.shape[1];
  const std::string codes = entry.name + "_packed";
  const std::string scales = entry.name + "_scale";
  if (form == HeldAs::kMxfp4) {
    return {{codes, {DType::kU8, {n, k / 2}, nullptr}},
            {scales, {DType::kU8, {n, k / kWeightGroup}, nullptr}}};
  }
  const NamedTensor shape{entry.name + "_shape", {DType::kI64, {2}, nullptr}};
  if (form == HeldAs::kInt4) {
    return {{codes, {DType::kI32, {n, k / 8}, nullptr}},
            {scales, {DType::kBF16, {n, k / kWeightGroup}, nullptr}},
            shape};
  }
  return {
      {codes, {DType::kI32, {n, blocks(k, 4)}, nullptr}}, {scales, {DType::kF32, {n, 1}, nullptr}}, shape};
}

std::int64_t bytes_of(const std::vector<NamedTensor>& tensors) {
  std::int64_t bytes = 0;
  for (const NamedTensor& t : tensors) bytes += t.view.bytes();
  return bytes;
}

/// Rounds a row: `codes` and `scales` as the pieces lie. False if a value is not finite, or too large.
bool round_row(const float* row, std::int64_t k, HeldAs form, std::int8_t* work, std::uint8_t* codes,
               std::uint8_t* scales) {
  if (form == HeldAs::kInt8) {
    const float scale = quantise_int8(row, k, work);
    std::memcpy(scales, &scale, sizeof(scale));
    for (std::int64_t i = 0; i < k; ++i) codes[i] = static_cast<std::uint8_t>(work[i] + 128);
    std::fill(codes + k, codes + blocks(k, 4) * 4, std::uint8_t{0});
    return std::isfinite(scale);
  }
  const std::int64_t groups = k / kWeightGroup;
  bool finite = true;
  int offset = 0;
  if (form == HeldAs::kInt4) {
    std::vector<std::uint16_t> halves(static_cast<std::size_t>(groups));
    quantise_int4(row, k, work, halves.data());
    for (const std::uint16_t half : halves) finite = finite && std::isfinite(bf16_to_f32(half));
    std::memcpy(scales, halves.data(), halves.size() * sizeof(std::uint16_t));
    offset = 8;
  } else {
    quantise_mxfp4(row, k, work, scales);
    finite = std::all_of(scales, scales + groups, [](int s) { return s < kMXFP4FirstOverflowingScale; });
  }
  for (std::int64_t i = 0; i < k / 2; ++i) {
    codes[i] = static_cast<std::uint8_t>((work[2 * i] + offset) | (work[2 * i + 1] + offset) << 4);
  }
  return finite;
}

/// Writes the pieces of one shard's tensors.
class ShardWriter {
 public:
  ShardWriter(const Checkpoint& checkpoint, SafetensorsWriter& file, ThreadPool& pool)
      : checkpoint_(checkpoint), file_(file), pool_(pool) {}

  /// `first`: the index, in the file, of the first piece.
  Status copy(const Checkpoint::Entry& entry, std::size_t first) {
    FL_TRY(file_.write(first, 0, entry.view.data, entry.view.bytes()));
    release(entry.view);
    return {};
  }

  Status round(const Checkpoint::Entry& entry, HeldAs form, std::size_t first) {
    WeightData weight;
    weight.name = entry.name;
    weight.shape = entry.view.shape;
    weight.data = entry.view;
    const std::int64_t n = weight.shape[0];
    const std::vector<NamedTensor> out = pieces(entry, form);
    const std::int64_t code_bytes = out[0].view.bytes() / std::max<std::int64_t>(n, 1);
    const std::int64_t scale_bytes = out[1].view.bytes() / std::max<std::int64_t>(n, 1);
    std::vector<Status> failures(static_cast<std::size_t>(pool_.threads()));
    pool_.run([&](int thread) {
      const Range mine = static_range(n, thread, pool_.threads());
      failures[static_cast<std::size_t>(thread)] =
          round_rows(weight, form, mine, first, code_bytes, scale_bytes);
    });
    for (const Status& failure : failures) FL_TRY(failure);
    if (out.size() > 2) {
      FL_TRY(file_.write(first + 2, 0, weight.shape.data(),
                         static_cast<std::int64_t>(2 * sizeof(std::int64_t))));
    }
    release(entry.view);
    return {};
  }

 private:
  Status round_rows(const WeightData& weight, HeldAs form, Range rows, std::size_t first,
                    std::int64_t code_bytes, std::int64_t scale_bytes) {
    const std::int64_t k = weight.shape[1];
    const std::int64_t most = std::clamp<std::int64_t>(kBlockElements / std::max<std::int64_t>(k, 1), 1,
                                                       std::max<std::int64_t>(rows.end - rows.begin, 1));
    std::vector<float> values(static_cast<std::size_t>(most * k));
    std::vector<std::int8_t> work(static_cast<std::size_t>(k));
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(most * code_bytes));
    std::vector<std::uint8_t> scales(static_cast<std::size_t>(most * scale_bytes));
    for (std::int64_t begin = rows.begin; begin < rows.end; begin += most) {
      const std::int64_t count = std::min(most, rows.end - begin);
      FL_TRY(read_rows_f32(weight, begin, count, values.data()));
      for (std::int64_t r = 0; r < count; ++r) {
        if (!round_row(values.data() + r * k, k, form, work.data(), codes.data() + r * code_bytes,
                       scales.data() + r * scale_bytes)) {
          return Error{"tensor " + quote_text(weight.name) + ", row " + std::to_string(begin + r) +
                       ": has a value that is not finite, or too large for " + std::string(form_name(form))};
        }
      }
      FL_TRY(file_.write(first, begin * code_bytes, codes.data(), count * code_bytes));
      FL_TRY(file_.write(first + 1, begin * scale_bytes, scales.data(), count * scale_bytes));
    }
    return {};
  }

  void release(const TensorView& view) const {
    checkpoint_.release({view.data, static_cast<std::size_t>(view.bytes())});
  }

  const Checkpoint& checkpoint_;
  SafetensorsWriter& file_;
  ThreadPool& pool_;
};

std::string shard_name(std::size_t shard, std::size_t shards) {
  if (shards == 1) return "model.safetensors";
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", shard + 1, shards);
  return name;
}

/// One sentence for each reason.
std::vector<std::string> obstacle_notices(
    const std::map<std::string, std::vector<const Checkpoint::Entry*>>& hindered) {
  std::vector<std::string> notices;
  for (const auto& [reason, entries] : hindered) {
    std::int64_t bytes = 0;
    for (const Checkpoint::Entry* e : entries) bytes += e->view.bytes();
    notices.push_back(std::to_string(entries.size()) + " tensors (" + bytes_text(bytes) +
                      ") stay as they are stored, the first of them " + quote_text(entries[0]->name) + ": " +
                      reason);
  }
  return notices;
}

}  // namespace

Result<QuantisePlan> QuantisePlan::make(const Graph& graph, const Checkpoint& checkpoint,
                                        QuantiseOptions options) {
  QuantisePlan plan;
  plan.checkpoint_ = &checkpoint;
  plan.options_ = std::move(options);
  const QuantiseOptions& o = plan.options_;
  FL_ASSIGN(const BoundWeights bound, bind_graph(graph, checkpoint));
  if (graph.quantization().format != WeightFormat::kPlain) {
    return Error{checkpoint.folder() + ": is quantised already (" +
                 std::string(format_name(graph.quantization().format)) + ")"};
  }
  check(o.experts != HeldAs::kStored && (o.weights == HeldAs::kStored || o.weights == o.experts),
        "one format to quantise to");
  plan.format_ = o.experts;

  const std::vector<Wish> wishes = wishes_of(graph, checkpoint, bound, o);
  std::map<std::string, std::vector<const Checkpoint::Entry*>> hindered;
  std::vector<HeldAs> forms;
  for (std::size_t i = 0; i < wishes.size(); ++i) {
    const Checkpoint::Entry& entry = checkpoint.entries()[i];
    HeldAs form = wishes[i].form;
    if (form != HeldAs::kStored) {
      if (const std::string why = obstacle(entry, wishes[i]); !why.empty()) {
        hindered[why].push_back(&entry);
        form = HeldAs::kStored;
      }
    }
    forms.push_back(form);
    plan.quantised_ += form != HeldAs::kStored ? 1 : 0;
    if (form == HeldAs::kStored && entry.view.shape.size() == 2 && entry.name.ends_with(kWeightSuffix)) {
      plan.plain_modules_.push_back(entry.name.substr(0, entry.name.size() - kWeightSuffix.size()));
    }
  }
  // Readers that build a head of its own before they tie it to the embedding look for its codes otherwise.
  if (std::ranges::none_of(checkpoint.entries(),
                           [](const auto& entry) { return entry.name.ends_with("lm_head.weight"); })) {
    plan.plain_modules_.emplace_back("lm_head");
  }
  plan.notices_ = obstacle_notices(hindered);
  if (plan.quantised_ == 0) {
    std::string why;
    for (const std::string& notice : plan.notices_) why += "; " + notice;
    return Error{checkpoint.folder() + ": has no matrix to write as " + std::string(form_name(plan.format_)) +
                 why};
  }
  plan.cut_into_shards(forms);
  return plan;
}

void QuantisePlan::cut_into_shards(const std::vector<HeldAs>& forms) {
  std::int64_t filled = 0;
  shards_.emplace_back();
  for (std::size_t i = 0; i < forms.size(); ++i) {
    const Checkpoint::Entry& entry = checkpoint_->entries()[i];
    const std::int64_t bytes = bytes_of(pieces(entry, forms[i]));
    if (!shards_.back().empty() && filled + bytes > options_.shard_bytes) {
      shards_.emplace_back();
      filled = 0;
    }
    shards_.back().push_back({&entry, forms[i]});
    filled += bytes;
    bytes_ += bytes;
  }
}

nlohmann::ordered_json QuantisePlan::config() const {
  const bool mxfp4 = format_ == HeldAs::kMxfp4;
  const std::string_view format = mxfp4 ? "mxfp4-pack-quantized" : "pack-quantized";
  using Json = nlohmann::ordered_json;
  Json weights = {{"num_bits", format_ == HeldAs::kInt8 ? 8 : 4},
                  {"type", mxfp4 ? "float" : "int"},
                  {"symmetric", true},
                  {"strategy", format_ == HeldAs::kInt8 ? "channel" : "group"},
                  {"group_size", format_ == HeldAs::kInt8 ? Json() : Json(kWeightGroup)},
                  {"block_structure", nullptr},
                  {"dynamic", false},
                  {"actorder", nullptr},
                  {"observer", "minmax"},
                  {"observer_kwargs", Json::object()},
                  {"scale_dtype", mxfp4 ? Json("torch.uint8") : Json()},
                  {"zp_dtype", nullptr}};
  const Json group = {{"targets", {"Linear"}},
                      {"weights", std::move(weights)},
                      {"input_activations", nullptr},
                      {"output_activations", nullptr},
                      {"format", format}};
  return {{"quant_method", "compressed-tensors"}, {"format", format},
          {"quantization_status", "compressed"},  {"global_compression_ratio", nullptr},
          {"kv_cache_scheme", nullptr},           {"ignore", plain_modules_},
          {"config_groups", {{"group_0", group}}}};
}

Status QuantisePlan::write(const std::string& folder) const {
  ThreadPool pool(options_.threads > 0 ? options_.threads : default_threads());
  const std::int64_t total = checkpoint_->total_bytes();
  std::int64_t done = 0;
  for (std::size_t s = 0; s < shards_.size(); ++s) {
    std::vector<NamedTensor> tensors;
    for (const Tensor& t : shards_[s])
      std::ranges::move(pieces(*t.entry, t.form), std::back_inserter(tensors));
    const std::string path = folder + "/" + shard_name(s, shards_.size());
    FL_ASSIGN(SafetensorsWriter file, SafetensorsWriter::create(path, tensors, {{"format", "pt"}}));
    ShardWriter writer(*checkpoint_, file, pool);
    std::size_t first = 0;
    for (const Tensor& t : shards_[s]) {
      if (options_.progress && !options_.progress(done, total)) return Error{folder + ": given up"};
      FL_TRY(t.form == HeldAs::kStored ? writer.copy(*t.entry, first)
                                       : writer.round(*t.entry, t.form, first));
      first += pieces(*t.entry, t.form).size();
      done += t.entry->view.bytes();
    }
    FL_TRY(file.commit());
  }
  return shards_.size() > 1 ? write_index(folder) : Status();
}

Status QuantisePlan::write_index(const std::string& folder) const {
  nlohmann::ordered_json::object_t map;
  for (std::size_t s = 0; s < shards_.size(); ++s) {
    for (const Tensor& t : shards_[s]) {
      for (const NamedTensor& piece : pieces(*t.entry, t.form)) {
        map.emplace_back(piece.name, shard_name(s, shards_.size()));
      }
    }
  }
  nlohmann::ordered_json index = {{"metadata", {{"total_size", bytes_}}}};
  index["weight_map"] = nlohmann::ordered_json(std::move(map));
  const std::string path = folder + "/" + kIndexName;
  std::ofstream out(path, std::ios::binary);
  out << index.dump(2) << '\n';
  out.close();
  if (!out) return Error{path + ": cannot be written"};
  return {};
}

}  // namespace firstlight
