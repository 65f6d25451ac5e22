#include "engine/dummy_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "base/random.h"
#include "checkpoint/name_pattern.h"

namespace firstlight {
namespace {

/// FNV-1a, 64 bits (Fowler, Noll, Vo).
std::uint64_t seed_of(std::string_view label) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : label) hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

/// What an element may be, by a random byte.
struct Grid {
  std::array<float, 256> values{};
};

/// About uniform in centre +- spread: levels at a power of two from each other, rounded to bf16 (which
/// changes none around a centre of 0).
Grid uniform(double centre, double spread) {
  int exponent = 0;
  std::frexp(spread, &exponent);  // spread = m * 2^exponent, m in [0.5, 1)
  const double step = std::ldexp(1.0, exponent - 7);
  const double levels = std::floor(spread / step);  // 64..127 on each side of 0
  Grid grid;
  for (std::size_t byte = 0; byte < grid.values.size(); ++byte) {
    const double level = std::floor((2 * levels + 1) * static_cast<double>(byte) / 256) - levels;
    grid.values[byte] = bf16_to_f32(f32_to_bf16(static_cast<float>(centre + step * level)));
  }
  return grid;
}

/// The codes of E2M1, each as likely, times a power of two.
Grid e2m1(double deviation) {
  constexpr std::array<double, 8> kMagnitudes = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  constexpr double kMeanSquare = (0.25 + 1 + 2.25 + 4 + 9 + 16 + 36) / 8;
  const double scale = std::exp2(std::round(std::log2(deviation / std::sqrt(kMeanSquare))));
  Grid grid;
  for (std::size_t byte = 0; byte < grid.values.size(); ++byte) {
    const double value = kMagnitudes[byte % 8] * scale;
    grid.values[byte] = static_cast<float>(byte % 16 < 8 ? value : -value);
  }
  return grid;
}

/// The codes -7..7 of 4 bits (-127..127 of 8) times a power of two.
Grid integers(double deviation, std::int64_t bits) {
  const double most = bits == 8 ? 127 : 7;
  const double scale = std::exp2(std::round(std::log2(deviation * std::sqrt(3.0) / most)));
  Grid grid;
  for (std::size_t byte = 0; byte < grid.values.size(); ++byte) {
    const double code = std::floor((2 * most + 1) * static_cast<double>(byte) / 256) - most;
    grid.values[byte] = static_cast<float>(code * scale);
  }
  return grid;
}

/// What reads a weight: the first node, and its input there.
struct Reader {
  const Node* node = nullptr;
  std::string_view op;
  std::string_view slot;
};

std::vector<Reader> readers_of(const Graph& graph) {
  std::vector<Reader> readers(graph.weights().size());
  for (const Node& node : graph.nodes()) {
    for (std::size_t s = 0; s < node.inputs.size(); ++s) {
      for (const ValueId v : node.inputs[s]) {
        const std::int32_t w = graph.values()[static_cast<std::size_t>(v)].weight;
        if (w < 0 || readers[static_cast<std::size_t>(w)].node != nullptr) continue;
        readers[static_cast<std::size_t>(w)] = {&node, node.contract->name, node.contract->inputs[s].name};
      }
    }
  }
  return readers;
}

bool is_matrix(const Reader& r) {
  return r.op == "linear" || (r.op == "mla" && r.slot == "kv_b") ||
         (r.op == "moe_experts" && !r.slot.ends_with("_bias"));
}

/// Whether published checkpoints of the format would hold this weight packed: MXFP4 is used for experts
/// alone (their configs' lists of exceptions are incomplete); other formats for every matrix but routers'
/// (which are f32 products) and those that the config excludes.
bool is_packed(const Graph& graph, const WeightDecl& weight, const Reader& reader,
               const ModuleList& not_converted) {
  const Quantization& q = graph.quantization();
  if (q.format == WeightFormat::kPlain || !is_matrix(reader)) return false;
  if (q.format == WeightFormat::kMXFP4) return reader.op == "moe_experts";
  if (not_converted.covering(weight.name) != nullptr) return false;
  return reader.op != "linear" || graph.spec(*reader.node).text("precision") != "f32";
}

Grid grid_of(const Graph& graph, const WeightDecl& weight, const Reader& reader,
             const ModuleList& not_converted) {
  const std::int64_t rows = weight.shape.empty() ? 1 : weight.shape[0];
  const std::int64_t columns = element_count(weight.shape) / std::max<std::int64_t>(rows, 1);
  const double deviation = 1 / std::sqrt(std::max(static_cast<double>(columns), 1.0));
  if (is_packed(graph, weight, reader, not_converted)) {
    if (graph.quantization().format == WeightFormat::kMXFP4) return e2m1(deviation);
    if (graph.quantization().format == WeightFormat::kInt)
      return integers(deviation, graph.quantization().bits);
  }
  const double spread = deviation * std::sqrt(3.0);
  if (is_matrix(reader) || reader.op == "short_conv" || reader.slot == "proj") return uniform(0, spread);
  if (reader.op == "embedding") return uniform(0, std::sqrt(3.0));
  if (reader.slot == "norm" || (reader.slot == "weight" && reader.op.ends_with("_norm"))) {
    const NodeSpec spec = graph.spec(*reader.node);
    return uniform(reader.op == "rms_norm" ? 1 - spec.real("weight_offset") : 1, 0.125);
  }
  if (reader.op == "kda") {  // rates of 1 to 7, times softplus of about -4: decays between 0.5 and 1
    return reader.slot == "A_log" ? uniform(1, 1) : uniform(-4, 2);
  }
  if (reader.op == "moe_route") return uniform(0, 1.0 / 64);
  return uniform(0, 1.0 / 16);  // biases, sinks, offsets of pooled keys
}

class DummyWeight final : public WeightSource {
 public:
  DummyWeight(std::string name, Shape shape, const Grid& grid, HeldAs form)
      : name_(std::move(name)), shape_(std::move(shape)), seed_(seed_of(name_)), grid_(grid), form_(form) {}

  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] const Shape& shape() const override { return shape_; }
  [[nodiscard]] bool exact_in_bf16() const override { return true; }
  [[nodiscard]] HeldAs stored_form() const override { return form_; }
  Status read_rows(std::int64_t begin, std::int64_t count, float* out) const override {
    const std::int64_t columns = elements() / std::max<std::int64_t>(rows(), 1);
    const std::int64_t words = (columns + 7) / 8;
    for (std::int64_t r = begin; r < begin + count; ++r, out += columns) {
      for (std::int64_t w = 0; w < words; ++w) {
        std::uint64_t bits = random_bits(seed_, static_cast<std::uint64_t>(r * words + w));
        const std::int64_t n = std::min<std::int64_t>(8, columns - 8 * w);
        for (std::int64_t i = 0; i < n; ++i, bits >>= 8) out[8 * w + i] = grid_.values[bits & 255U];
      }
    }
    return {};
  }

 private:
  std::string name_;
  Shape shape_;
  std::uint64_t seed_;
  Grid grid_;
  HeldAs form_;
};

/// What kernels can hold of a packed weight, see WeightSource.
HeldAs form_of(const Quantization& q) {
  if (q.format == WeightFormat::kMXFP4) return HeldAs::kMxfp4;
  if (q.format != WeightFormat::kInt) return HeldAs::kStored;
  if (q.bits == 4) return q.block_columns == 32 ? HeldAs::kInt4 : HeldAs::kStored;
  return q.block_columns == 0 ? HeldAs::kInt8 : HeldAs::kStored;
}

}  // namespace

Result<std::vector<std::unique_ptr<WeightSource>>> make_dummy_weights(const Graph& graph) {
  FL_ASSIGN(const ModuleList not_converted, ModuleList::create(graph.quantization().not_converted));
  const std::vector<Reader> readers = readers_of(graph);
  std::vector<std::unique_ptr<WeightSource>> sources;
  for (std::size_t w = 0; w < readers.size(); ++w) {
    const WeightDecl& weight = graph.weights()[w];
    const bool packed = is_packed(graph, weight, readers[w], not_converted);
    sources.push_back(std::make_unique<DummyWeight>(
        weight_label(weight), weight.shape, grid_of(graph, weight, readers[w], not_converted),
        packed ? form_of(graph.quantization()) : HeldAs::kStored));
  }
  return sources;
}

}  // namespace firstlight
