// The graph's text form. Values are numbered by their order of appearance, not by id, so that a pass that
// removes a value does not renumber unrelated lines more than it must; weights stand by their names.
#include <cctype>
#include <map>

#include "graph/graph.h"

namespace firstlight {
namespace {

/// "a.{0..7}.b" for a list of names that differ in one running number; empty when they are no such list.
std::string collapse(const std::vector<std::string>& names) {
  if (names.size() < 2) return "";
  std::size_t at = 0;
  while (at < names[0].size() && at < names[1].size() && names[0][at] == names[1][at]) ++at;
  while (at > 0 && std::isdigit(static_cast<unsigned char>(names[0][at - 1])) != 0) --at;
  std::size_t end = at;
  while (end < names[0].size() && std::isdigit(static_cast<unsigned char>(names[0][end])) != 0) ++end;
  const std::string prefix = names[0].substr(0, at);
  const std::string suffix = names[0].substr(end);
  for (std::size_t i = 0; i < names.size(); ++i) {
    std::string expected = prefix;
    expected += std::to_string(i);
    expected += suffix;
    if (names[i] != expected) return "";
  }
  return prefix + "{0.." + std::to_string(names.size() - 1) + "}" + suffix;
}

}  // namespace

std::string graph_text(const Graph& graph) {
  std::map<ValueId, int> number{{graph.tokens(), 0}};
  std::multimap<ValueId, std::string> names;
  for (const NamedValue& n : graph.names()) names.emplace(n.value, n.name);
  const auto label = [&](ValueId v) { return "%" + std::to_string(number.at(v)); };

  std::string text = "graph " + graph.family() + "\n%0 = tokens : i32[T]\n";
  std::string scope;
  for (const Node& node : graph.nodes()) {
    if (node.scope != scope) {
      scope = node.scope;
      text += "\n# " + scope + "\n";
    }
    std::string line;
    for (const ValueId v : node.outputs) {
      number.emplace(v, static_cast<int>(number.size()));
      line += (line.empty() ? "" : ", ") + label(v);
    }
    line += " = " + std::string(node.contract->name) + "(";
    bool first = true;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i].empty()) continue;
      if (!first) line += ", ";
      first = false;
      const InputSlot& slot = node.contract->inputs[i];
      if (i != 0) line += std::string(slot.name) + "=";
      std::vector<std::string> parts;
      for (const ValueId v : node.inputs[i]) {
        const Value& value = graph.values()[static_cast<std::size_t>(v)];
        parts.push_back(value.weight >= 0
                            ? weight_label(graph.weights()[static_cast<std::size_t>(value.weight)])
                            : label(v));
      }
      if (!slot.variadic) {
        line += parts[0];
      } else if (const std::string pattern = collapse(parts); !pattern.empty()) {
        line += "[" + pattern + "]";
      } else {
        line += "[";
        for (std::size_t p = 0; p < parts.size(); ++p) line += (p == 0 ? "" : ", ") + parts[p];
        line += "]";
      }
    }
    for (std::size_t a = 0; a < node.attributes.size(); ++a) {
      const AttributeSpec& spec = node.contract->attributes[a];
      if (spec.fallback && *spec.fallback == node.attributes[a]) continue;
      line += ", " + std::string(spec.name) + "=" + attribute_text(node.attributes[a]);
    }
    line += ") : ";
    for (std::size_t o = 0; o < node.outputs.size(); ++o) {
      line +=
          (o == 0 ? "" : ", ") + type_text(graph.values()[static_cast<std::size_t>(node.outputs[o])].type);
    }
    std::string known;
    for (const ValueId v : node.outputs) {
      const auto [begin, end] = names.equal_range(v);
      for (auto it = begin; it != end; ++it) known += (known.empty() ? "" : ", ") + it->second;
    }
    if (!known.empty()) line += "  ; " + known;
    text += line + "\n";
  }
  if (graph.logits() >= 0) text += "\nreturn " + label(graph.logits()) + "\n";
  return text;
}

}  // namespace firstlight
