// The dataflow graph of a model: operators on values, weights by name. Everything else (program, plan,
// inspect, verify) is derived from it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/quantization.h"
#include "base/result.h"
#include "base/tensor_part.h"
#include "ops/contract.h"

namespace firstlight {

using ValueId = std::int32_t;

/// A tensor of the checkpoint, or a part of one, as the model file expects it.
struct WeightDecl {
  std::string name;
  Shape shape;              // as the operators see it
  std::vector<Shape> also;  // other stored shapes of as many elements (a squeezed dimension, ...)
  std::int64_t padded = 0;  // the tensor may be stored with this many rows instead, zero beyond the shape
  std::optional<TensorPart> part = {};    // of the tensor; `shape` is the part's
  std::optional<NamedPart> or_part = {};  // what to take where no such tensor is stored
};

/// The name, and which part: "experts.gate_up_proj[3].rows(0, 1, 2)". Different in every declaration.
std::string weight_label(const WeightDecl& weight);

struct Value {
  ValueType type;
  std::int32_t node = -1;    // producer; -1 for the tokens and for weights
  std::int32_t weight = -1;  // index into weights(), or -1
};

struct Node {
  const OpContract* contract = nullptr;
  std::string scope;                         // "layers.3.self_attn"; for people
  std::vector<std::vector<ValueId>> inputs;  // by input slot
  std::vector<Attribute> attributes;         // by AttributeSpec
  std::vector<ValueId> outputs;
};

/// A name under which a value can be asked for ("hidden.3", "topk.5").
struct NamedValue {
  std::string name;
  ValueId value;
};

/// Tensors of a checkpoint that the model file knows and does not compute.
struct NotComputed {
  std::string prefix;
  std::string reason;
  std::string copy_of = {};  // if not empty: they must hold the same bytes as this tensor
};

class Graph {
 public:
  explicit Graph(std::string family = "");

  [[nodiscard]] const std::string& family() const { return family_; }
  /// The step's token ids, i32 [T].
  [[nodiscard]] ValueId tokens() const { return 0; }

  /// Declares a weight, or returns the same value when it was declared before with the same shape. Parts of
  /// one tensor are different weights.
  Result<ValueId> weight(WeightDecl decl);

  /// From now on at most so many weights may be declared.
  void limit_weights(std::size_t most) { most_weights_ = most; }

  /// Appends a node; checks slots, types and the shape rule. `attributes` by name; absent ones take the
  /// contract's fallback. Returns the outputs.
  Result<std::vector<ValueId>> add(std::string_view op, std::vector<std::vector<ValueId>> inputs,
                                   const std::map<std::string, Attribute>& attributes);

  /// Scope of the nodes added from now on.
  void set_scope(std::string scope) { scope_ = std::move(scope); }

  /// Names a value. A name may be given once; a value may have several names.
  Status name(ValueId value, const std::string& name);
  /// The graph's result, f32 [R, vocab].
  void set_logits(ValueId value) { logits_ = value; }
  [[nodiscard]] ValueId logits() const { return logits_; }

  /// The packed format that config.json declares for some weights.
  void set_quantization(Quantization quantization) { quantization_ = std::move(quantization); }
  [[nodiscard]] const Quantization& quantization() const { return quantization_; }
  void add_not_computed(NotComputed what) { not_computed_.push_back(std::move(what)); }
  [[nodiscard]] const std::vector<NotComputed>& not_computed() const { return not_computed_; }

  [[nodiscard]] const std::vector<Value>& values() const { return values_; }
  [[nodiscard]] const std::vector<Node>& nodes() const { return nodes_; }
  [[nodiscard]] const std::vector<WeightDecl>& weights() const { return weights_; }
  [[nodiscard]] const std::vector<NamedValue>& names() const { return names_; }
  [[nodiscard]] std::optional<ValueId> find(std::string_view name) const;

  /// The node as its operator sees it.
  [[nodiscard]] NodeSpec spec(const Node& node) const;

  /// Replaces all nodes (passes use this); values keep their ids. Producers are recomputed.
  void replace_nodes(std::vector<Node> nodes);

 private:
  std::string family_;
  std::string scope_;
  std::vector<Value> values_;
  std::vector<Node> nodes_;
  std::vector<WeightDecl> weights_;
  std::size_t most_weights_ = static_cast<std::size_t>(-1);
  std::map<std::string, ValueId, std::less<>> weight_by_label_;
  struct Stored {
    Shape shape;
    bool transposed;
  };
  std::map<std::string, Stored, std::less<>> stored_;  // by tensor
  std::vector<NamedValue> names_;
  ValueId logits_ = -1;
  Quantization quantization_;
  std::vector<NotComputed> not_computed_;
};

/// Text form: one line a node, readable and stable under diff.
std::string graph_text(const Graph& graph);

}  // namespace firstlight
