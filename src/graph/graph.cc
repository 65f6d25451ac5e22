#include "graph/graph.h"

#include <algorithm>

#include "ops/registry.h"

namespace firstlight {

namespace {

Result<Attribute> fit_attribute(const OpContract& contract, const AttributeSpec& spec,
                                const Attribute& given) {
  const auto wrong = [&](const char* expected) {
    return Error{std::string(contract.name) + ": attribute `" + std::string(spec.name) + "` must be " +
                 expected + ", got " + attribute_text(given)};
  };
  switch (spec.type) {
    case AttributeType::kInt:
      if (!std::holds_alternative<std::int64_t>(given)) return wrong("an integer");
      break;
    case AttributeType::kFloat:
      if (const auto* i = std::get_if<std::int64_t>(&given)) return Attribute{static_cast<double>(*i)};
      if (!std::holds_alternative<double>(given)) return wrong("a number");
      break;
    case AttributeType::kBool:
      if (!std::holds_alternative<bool>(given)) return wrong("true or false");
      break;
    case AttributeType::kText:
      if (!std::holds_alternative<std::string>(given)) return wrong("a text");
      break;
    case AttributeType::kFloats:
      if (!std::holds_alternative<std::vector<double>>(given)) return wrong("a list of numbers");
      break;
  }
  return given;
}

std::string known_attributes(const OpContract& contract) {
  std::string s;
  for (const AttributeSpec& a : contract.attributes) s += (s.empty() ? "" : ", ") + std::string(a.name);
  return s.empty() ? "none" : s;
}

}  // namespace

Graph::Graph(std::string family) : family_(std::move(family)) {
  values_.push_back({.type = {.dtype = DType::kI32, .rows = Rows::kTokens, .shape = {}}});
}

std::string weight_label(const WeightDecl& weight) {
  return weight.name + (weight.part ? part_text(*weight.part) : "");
}

namespace {

/// Sizes come from config.json: their product must not overflow.
Status check_stored(const std::string& name, const Shape& stored) {
  constexpr std::int64_t kMostElements = std::int64_t{1} << 48;
  std::int64_t elements = 1;
  for (const std::int64_t d : stored) {
    if (d > kMostElements / std::max<std::int64_t>(elements, 1)) {
      return Error{"weight " + name + ": shape " + shape_text(stored) + " is larger than any model"};
    }
    elements *= d;
    if (d <= 0) return Error{"weight " + name + ": shape " + shape_text(stored) + " is not positive"};
  }
  return {};
}

}  // namespace

Result<ValueId> Graph::weight(WeightDecl decl) {
  const Shape& stored = decl.part ? decl.part->full : decl.shape;
  FL_TRY(check_stored(decl.name, stored));
  if (decl.or_part) {
    FL_TRY(check_stored(decl.or_part->name, decl.or_part->part.full));
  }
  const std::string label = weight_label(decl);
  if (decl.part && part_shape(*decl.part) != decl.shape) {
    return Error{"weight " + label + " has shape " + shape_text(part_shape(*decl.part)) + ", not " +
                 shape_text(decl.shape)};
  }
  if (decl.or_part && part_shape(decl.or_part->part) != decl.shape) {
    return Error{"weight " + label + " has shape " + shape_text(decl.shape) + ", the part of " +
                 decl.or_part->name + " has " + shape_text(part_shape(decl.or_part->part))};
  }
  if (decl.part && decl.padded != 0) return Error{"weight " + label + ": a part cannot be padded"};
  if (const auto it = weight_by_label_.find(label); it != weight_by_label_.end()) {
    const WeightDecl& before =
        weights_[static_cast<std::size_t>(values_[static_cast<std::size_t>(it->second)].weight)];
    if (before.shape != decl.shape) {
      return Error{"weight " + label + " is used with shapes " + shape_text(before.shape) + " and " +
                   shape_text(decl.shape)};
    }
    return it->second;
  }
  const bool transposed = decl.part && decl.part->transposed;
  if (const auto [it, added] = stored_.emplace(decl.name, Stored{stored, transposed}); !added) {
    if (it->second.shape != stored) {
      return Error{"weight " + decl.name + " is used with shapes " + shape_text(it->second.shape) + " and " +
                   shape_text(stored)};
    }
    if (it->second.transposed != transposed) {
      return Error{"weight " + decl.name + " is used both as it is stored and transposed"};
    }
  }
  if (weights_.size() >= most_weights_) {
    return Error{"the model would have more than " + std::to_string(most_weights_) +
                 " weights, which the checkpoint is too small to hold"};
  }
  const auto id = static_cast<ValueId>(values_.size());
  values_.push_back({.type = {.dtype = DType::kF32, .rows = Rows::kFixed, .shape = decl.shape},
                     .weight = static_cast<std::int32_t>(weights_.size())});
  weight_by_label_[label] = id;
  weights_.push_back(std::move(decl));
  return id;
}

Result<std::vector<ValueId>> Graph::add(std::string_view op, std::vector<std::vector<ValueId>> inputs,
                                        const std::map<std::string, Attribute>& attributes) {
  FL_ASSIGN(const OpContract* contract, find_contract(op));
  const std::string who(op);
  if (inputs.size() > contract->inputs.size()) return Error{who + ": too many inputs"};
  inputs.resize(contract->inputs.size());
  std::vector<std::vector<ValueType>> types(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const InputSlot& slot = contract->inputs[i];
    const std::string which = who + ": input `" + std::string(slot.name) + "`";
    if (inputs[i].empty() && !slot.optional) return Error{which + " is missing"};
    if (inputs[i].size() > 1 && !slot.variadic) return Error{which + " takes one value, not a list"};
    for (const ValueId v : inputs[i]) {
      check(v >= 0 && static_cast<std::size_t>(v) < values_.size(), "a value of another graph");
      const Value& value = values_[static_cast<std::size_t>(v)];
      if ((value.weight >= 0) != (slot.kind == InputSlot::Kind::kWeight)) {
        return Error{which +
                     (value.weight >= 0 ? " takes a computed value, not a weight" : " takes a weight")};
      }
      types[i].push_back(value.type);
    }
  }
  std::vector<Attribute> fitted;
  for (const AttributeSpec& spec : contract->attributes) {
    const auto it = attributes.find(std::string(spec.name));
    if (it == attributes.end()) {
      if (!spec.fallback) {
        return Error{who + ": attribute `" + std::string(spec.name) + "` (" + std::string(spec.meaning) +
                     ") is missing"};
      }
      fitted.push_back(*spec.fallback);
      continue;
    }
    FL_ASSIGN(Attribute value, fit_attribute(*contract, spec, it->second));
    fitted.push_back(std::move(value));
  }
  for (const auto& [name, value] : attributes) {
    const bool known = std::ranges::any_of(contract->attributes,
                                           [&wanted = name](const auto& a) { return a.name == wanted; });
    if (!known) {
      return Error{who + ": no input or attribute `" + name +
                   "`; attributes: " + known_attributes(*contract)};
    }
  }

  FL_ASSIGN(std::vector<ValueType> outputs, contract->infer(NodeSpec(*contract, types, fitted)));
  Node node{.contract = contract,
            .scope = scope_,
            .inputs = std::move(inputs),
            .attributes = std::move(fitted),
            .outputs = {}};
  for (ValueType& type : outputs) {
    node.outputs.push_back(static_cast<ValueId>(values_.size()));
    values_.push_back({.type = std::move(type), .node = static_cast<std::int32_t>(nodes_.size())});
  }
  nodes_.push_back(std::move(node));
  return nodes_.back().outputs;
}

Status Graph::name(ValueId value, const std::string& name) {
  if (find(name)) return Error{"two values are named " + name};
  names_.push_back({name, value});
  return {};
}

std::optional<ValueId> Graph::find(std::string_view name) const {
  for (const NamedValue& n : names_) {
    if (n.name == name) return n.value;
  }
  return std::nullopt;
}

NodeSpec Graph::spec(const Node& node) const {
  std::vector<std::vector<ValueType>> types(node.inputs.size());
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    for (const ValueId v : node.inputs[i]) types[i].push_back(values_[static_cast<std::size_t>(v)].type);
  }
  return NodeSpec(*node.contract, std::move(types), node.attributes);
}

void Graph::replace_nodes(std::vector<Node> nodes) {
  nodes_ = std::move(nodes);
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    for (const ValueId v : nodes_[n].outputs)
      values_[static_cast<std::size_t>(v)].node = static_cast<std::int32_t>(n);
  }
}

}  // namespace firstlight
