#include "ops/contract.h"

#include <cstdio>

namespace firstlight {

std::string type_text(const ValueType& type) {
  std::string s = type.dtype == DType::kF32 ? "f32" : type.dtype == DType::kI32 ? "i32" : "?";
  s += "[";
  bool first = true;
  if (type.rows != Rows::kFixed) {
    s += type.rows == Rows::kTokens ? "T" : "R";
    first = false;
  }
  for (const std::int64_t d : type.shape) {
    if (!first) s += ", ";
    s += std::to_string(d);
    first = false;
  }
  return s + "]";
}

std::string attribute_text(const Attribute& value) {
  if (const auto* i = std::get_if<std::int64_t>(&value)) return std::to_string(*i);
  if (const auto* d = std::get_if<double>(&value)) {
    char text[32];
    std::snprintf(text, sizeof text, "%.9g", *d);
    return text;
  }
  if (const auto* b = std::get_if<bool>(&value)) return *b ? "true" : "false";
  if (const auto* list = std::get_if<std::vector<double>>(&value)) {
    // Long lists (rotary frequencies) stand as their ends.
    std::string text = "[";
    for (std::size_t i = 0; i < list->size(); ++i) {
      if (list->size() > 6 && i == 2) {
        text += ", ... " + std::to_string(list->size() - 4) + " more";
        i = list->size() - 2;
      }
      text += (i == 0 ? "" : ", ") + attribute_text(Attribute{(*list)[i]});
    }
    return text + "]";
  }
  return "\"" + std::get<std::string>(value) + "\"";
}

const std::vector<ValueType>& NodeSpec::inputs(std::string_view slot) const {
  for (std::size_t i = 0; i < contract_->inputs.size(); ++i) {
    if (contract_->inputs[i].name == slot) return inputs_[i];
  }
  check(false, "an operator asks for an input slot that its contract does not declare");
  return inputs_.front();
}

const Attribute& NodeSpec::attribute(std::string_view name) const {
  for (std::size_t i = 0; i < contract_->attributes.size(); ++i) {
    if (contract_->attributes[i].name == name) return attributes_[i];
  }
  check(false, "an operator asks for an attribute that its contract does not declare");
  return attributes_.front();
}

std::string_view shard_rule_name(ShardRule rule) {
  switch (rule) {
    case ShardRule::kRows:
      return "rows";
    case ShardRule::kColumns:
      return "columns";
    case ShardRule::kHeads:
      return "heads";
    case ShardRule::kExperts:
      return "experts";
    case ShardRule::kReplicate:
      return "replicate";
  }
  return "?";
}

Error contract_error(const NodeSpec& node, const std::string& what) {
  return Error{std::string(node.contract().name) + ": " + what};
}

}  // namespace firstlight
