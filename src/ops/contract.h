// What an operator declares about itself, as data: inputs, attributes, shape rule, cost, shard rule and
// caches. The graph, the planner, `inspect` and the Python vocabulary are derived from these contracts;
// none of them knows a kernel.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "base/tensor.h"

namespace firstlight {

/// The first dimension of a value. Tokens and sampled rows are symbolic until a step runs.
enum class Rows : std::uint8_t {
  kTokens,   // T: one row a token of the step
  kSampled,  // R: one row a token whose logits are asked for
  kFixed,    // no symbolic dimension: a weight
};

/// Type of a value: [T, shape...], [R, shape...] or [shape...].
struct ValueType {
  DType dtype = DType::kF32;
  Rows rows = Rows::kTokens;
  Shape shape;  // without the symbolic dimension

  friend bool operator==(const ValueType&, const ValueType&) = default;
  /// Elements of one row (of the whole tensor for kFixed).
  [[nodiscard]] std::int64_t width() const { return element_count(shape); }
};

/// "f32[T, 96]"
std::string type_text(const ValueType& type);

using Attribute = std::variant<std::int64_t, double, bool, std::string, std::vector<double>>;
enum class AttributeType : std::uint8_t { kInt, kFloat, kBool, kText, kFloats };
std::string attribute_text(const Attribute& value);

struct AttributeSpec {
  std::string_view name;
  AttributeType type;
  std::string_view meaning;
  std::optional<Attribute> fallback = std::nullopt;  // absent: the model file must give it
};

/// An input of an operator. Weights are bound at load; the others are computed in the step.
struct InputSlot {
  enum class Kind : std::uint8_t { kValue, kWeight };
  std::string_view name;
  Kind kind = Kind::kValue;
  bool optional = false;
  bool variadic = false;  // takes a list of one or more
};

/// One use of an operator, as its own functions see it: types and attributes, no graph.
class NodeSpec {
 public:
  NodeSpec(const struct OpContract& contract, std::vector<std::vector<ValueType>> inputs,
           std::vector<Attribute> attributes)
      : contract_(&contract), inputs_(std::move(inputs)), attributes_(std::move(attributes)) {}

  [[nodiscard]] const OpContract& contract() const { return *contract_; }
  /// All values of a slot; empty when an optional slot is not given.
  [[nodiscard]] const std::vector<ValueType>& inputs(std::string_view slot) const;
  /// The only value of a slot that must be there.
  [[nodiscard]] const ValueType& input(std::string_view slot) const { return inputs(slot).front(); }
  [[nodiscard]] bool has(std::string_view slot) const { return !inputs(slot).empty(); }

  [[nodiscard]] const Attribute& attribute(std::string_view name) const;
  [[nodiscard]] std::int64_t integer(std::string_view name) const {
    return std::get<std::int64_t>(attribute(name));
  }
  [[nodiscard]] double real(std::string_view name) const { return std::get<double>(attribute(name)); }
  [[nodiscard]] bool flag(std::string_view name) const { return std::get<bool>(attribute(name)); }
  [[nodiscard]] const std::string& text(std::string_view name) const {
    return std::get<std::string>(attribute(name));
  }
  [[nodiscard]] const std::vector<double>& reals(std::string_view name) const {
    return std::get<std::vector<double>>(attribute(name));
  }

 private:
  const OpContract* contract_;
  std::vector<std::vector<ValueType>> inputs_;  // by slot
  std::vector<Attribute> attributes_;           // by AttributeSpec
};

/// Tokens of one cache page (design: the unit of allocation, sharing and moving).
inline constexpr std::int64_t kPageTokens = 64;

/// Memory that an operator keeps between steps. The cache manager adds these up; nobody else knows pages.
struct CacheSpec {
  enum class Scope : std::uint8_t { kPerPage, kPerSequence };
  enum class Storage : std::uint8_t {
    kF32,      // f32 in every mode
    kCompute,  // bf16 in bf16 mode, f32 in f32 mode
    kBytes,    // the operator's own layout; an element is a byte, in every mode
  };
  std::string name;  // unique within the operator
  Scope scope;
  std::int64_t elements = 0;  // of one page of kPageTokens tokens, or of one sequence
  Storage storage = Storage::kCompute;
};

/// The type of a cache's elements in a run of that mode.
constexpr DType storage_dtype(CacheSpec::Storage storage, bool f32) {
  if (storage == CacheSpec::Storage::kBytes) return DType::kU8;
  return storage == CacheSpec::Storage::kF32 || f32 ? DType::kF32 : DType::kBF16;
}

/// Sizes of a step, for costs.
struct StepShape {
  std::int64_t tokens = 1;   // T
  std::int64_t sampled = 1;  // R
  std::int64_t context = 0;  // tokens before these, per sequence
  bool f32 = false;          // the run's mode, as of storage_dtype()

  /// Bytes of an element of CacheSpec::Storage::kCompute.
  [[nodiscard]] double cached_element() const {
    return static_cast<double>(dtype_size(storage_dtype(CacheSpec::Storage::kCompute, f32)));
  }
  [[nodiscard]] std::int64_t rows(Rows kind) const { return kind == Rows::kSampled ? sampled : tokens; }
};

/// Work of one node in one step. Bytes count weights and caches read once; activations are small.
struct Cost {
  double flops = 0;
  double weight_bytes = 0;
  double cache_bytes = 0;
};

/// How a node may be split over ranks.
enum class ShardRule : std::uint8_t {
  kRows,      // independent rows: split tokens, replicate weights
  kColumns,   // weight rows (output columns) may be split; inputs replicated
  kHeads,     // heads may be split, state and caches with them
  kExperts,   // experts may be split; partial sums are added in expert order
  kReplicate  // every rank does it whole (choices that must agree)
};
std::string_view shard_rule_name(ShardRule rule);

struct OpContract {
  std::string_view name;
  std::string_view equation;  // one line, as in the paper
  std::string_view source;    // where it is defined
  std::vector<InputSlot> inputs;
  std::vector<AttributeSpec> attributes;
  std::vector<std::string_view> outputs;  // one name an output; a trailing "..." means one a variadic input
  ShardRule shard = ShardRule::kRows;
  /// Output types, or an Error that names the input or attribute at fault.
  Result<std::vector<ValueType>> (*infer)(const NodeSpec&) = nullptr;
  Cost (*cost)(const NodeSpec&, const StepShape&) = nullptr;
  std::vector<CacheSpec> (*caches)(const NodeSpec&) = nullptr;  // nullptr: stateless
};

/// Builds "linear: input `x` has width 96, the weight expects 80"-like errors.
Error contract_error(const NodeSpec& node, const std::string& what);

}  // namespace firstlight
