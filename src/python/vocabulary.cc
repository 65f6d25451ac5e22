#include "python/vocabulary.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ops/registry.h"

namespace py = pybind11;

namespace firstlight {
namespace {

template <class T>
T unwrap(Result<T> result) {
  if (!result.ok()) throw py::value_error(result.error().message);
  return std::move(*result);
}
void unwrap(const Status& status) {
  if (!status.ok()) throw py::value_error(status.error().message);
}

/// A call of an operator from Python, taken apart by its contract.
struct Call {
  std::shared_ptr<Graph> graph;
  std::vector<std::vector<ValueId>> inputs;
  std::map<std::string, Attribute> attributes;
  bool listed = false;  // an input was given as a list
};

ValueId take_value(Call& call, const py::handle& object, const std::string& what) {
  if (!py::isinstance<PyValue>(object)) throw py::type_error(what + " must be a value of the graph");
  const auto& value = object.cast<const PyValue&>();
  if (call.graph && call.graph != value.graph) throw py::value_error(what + " belongs to another graph");
  call.graph = value.graph;
  return value.id;
}

void take_input(Call& call, const OpContract& op, std::size_t slot, const py::handle& object) {
  const std::string what = std::string(op.name) + ": input `" + std::string(op.inputs[slot].name) + "`";
  if (object.is_none()) return;
  if (py::isinstance<py::list>(object) || py::isinstance<py::tuple>(object)) {
    call.listed = true;
    for (const py::handle item : object) call.inputs[slot].push_back(take_value(call, item, what));
    return;
  }
  call.inputs[slot].push_back(take_value(call, object, what));
}

Attribute take_attribute(const std::string& name, const py::handle& object) {
  if (py::isinstance<py::bool_>(object)) return object.cast<bool>();
  if (py::isinstance<py::int_>(object)) return object.cast<std::int64_t>();
  if (py::isinstance<py::float_>(object)) return object.cast<double>();
  if (py::isinstance<py::str>(object)) return object.cast<std::string>();
  if (py::isinstance<py::list>(object) || py::isinstance<py::tuple>(object)) {
    std::vector<double> numbers;
    for (const py::handle item : object) {
      if (!py::isinstance<py::float_>(item) && !py::isinstance<py::int_>(item)) {
        throw py::type_error("attribute `" + name + "` must list numbers only");
      }
      numbers.push_back(item.cast<double>());
    }
    return numbers;
  }
  throw py::type_error("attribute `" + name + "` must be a number, a text, true, false or a list of numbers");
}

py::object call_operator(const OpContract& op, const py::args& args, const py::kwargs& kwargs) {
  const std::string who(op.name);
  Call call;
  call.inputs.resize(op.inputs.size());
  if (args.size() > op.inputs.size()) throw py::type_error(who + ": too many positional inputs");
  for (std::size_t i = 0; i < args.size(); ++i) take_input(call, op, i, args[i]);
  for (const auto& [key, value] : kwargs) {
    const auto name = key.cast<std::string>();
    bool is_input = false;
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      if (op.inputs[i].name != name) continue;
      if (i < args.size()) throw py::type_error(who + ": input `" + name + "` is given twice");
      take_input(call, op, i, value);
      is_input = true;
    }
    if (!is_input) call.attributes[name] = take_attribute(name, value);
  }
  if (!call.graph) throw py::type_error(who + ": no input is given");
  const std::vector<ValueId> outputs =
      unwrap(call.graph->add(op.name, std::move(call.inputs), call.attributes));
  if (op.outputs.size() == 1 && !(call.listed && op.outputs[0].ends_with("..."))) {
    return py::cast(PyValue{call.graph, outputs[0]});
  }
  py::list values;
  for (const ValueId v : outputs) values.append(PyValue{call.graph, v});
  return py::tuple(values);
}

std::string describe(const OpContract& op) {
  std::string text = std::string(op.equation) + "\n\nSource: " + std::string(op.source) + "\n\nInputs:\n";
  for (const InputSlot& slot : op.inputs) {
    text += "  " + std::string(slot.name) + (slot.kind == InputSlot::Kind::kWeight ? " (weight" : " (value");
    text += std::string(slot.variadic ? ", list" : "") + (slot.optional ? ", optional" : "") + ")\n";
  }
  if (!op.attributes.empty()) text += "Attributes:\n";
  for (const AttributeSpec& a : op.attributes) {
    text += "  " + std::string(a.name) + ": " + std::string(a.meaning);
    if (a.fallback) text += " (default " + attribute_text(*a.fallback) + ")";
    text += "\n";
  }
  return text;
}

/// (first, count) or (first, count, every).
using PyRows = std::optional<std::vector<std::int64_t>>;
/// Name and shape of a stored tensor, `at` and `rows`.
using OtherPart = std::tuple<std::string, Shape, std::vector<std::int64_t>, PyRows>;

TensorPart take_part(const std::string& name, Shape full, std::vector<std::int64_t> at, const PyRows& rows,
                     bool transposed) {
  std::optional<RowChoice> choice;
  if (rows && rows->size() != 2 && rows->size() != 3) {
    throw py::value_error("weight " + name + ": `rows` is (first, count) or (first, count, every)");
  }
  if (rows) choice = {(*rows)[0], (*rows)[1], rows->size() == 3 ? (*rows)[2] : 0};
  Result<TensorPart> part = make_part(std::move(full), std::move(at), choice, transposed);
  if (!part.ok()) throw py::value_error("weight " + name + ": " + part.error().message);
  return std::move(*part);
}

PyValue declare_weight(const std::shared_ptr<Graph>& g, std::string name, Shape shape,
                       std::vector<Shape> also, std::int64_t padded, std::optional<Shape> part_of,
                       std::vector<std::int64_t> at, const PyRows& rows, bool transposed,
                       std::optional<OtherPart> or_part) {
  WeightDecl decl{
      .name = std::move(name), .shape = std::move(shape), .also = std::move(also), .padded = padded};
  if (!part_of && (!at.empty() || rows || transposed)) {
    throw py::value_error("weight " + decl.name + ": `at`, `rows` and `transposed` need `part_of`");
  }
  if (part_of) decl.part = take_part(decl.name, std::move(*part_of), std::move(at), rows, transposed);
  if (or_part) {
    auto& [other, full, other_at, other_rows] = *or_part;
    decl.or_part = {other, take_part(other, std::move(full), std::move(other_at), other_rows, false)};
  }
  return {g, unwrap(g->weight(std::move(decl)))};
}

void declare_quantization(Graph& g, const std::optional<std::string>& format,
                          const std::vector<std::int64_t>& block, std::int64_t bits,
                          std::vector<std::string> not_converted) {
  Quantization q{.bits = bits, .not_converted = std::move(not_converted)};
  if (!format) return g.set_quantization({});
  const auto formats = {WeightFormat::kFP8, WeightFormat::kInt, WeightFormat::kMXFP4};
  const auto* const found = std::ranges::find(formats, *format, format_name);
  if (found == formats.end()) throw py::value_error("quantization: there is no format `" + *format + "`");
  q.format = *found;
  if (block.size() == 2 && block[0] >= 0 && block[1] >= 0) {
    q.block_rows = block[0];
    q.block_columns = block[1];
  } else {
    throw py::value_error("quantization: `block` is the rows and columns that share a scale, got " +
                          shape_text(block));
  }
  if (q.format == WeightFormat::kInt && bits != 4 && bits != 8) {
    throw py::value_error("quantization: integers have 4 or 8 bits, not " + std::to_string(bits));
  }
  g.set_quantization(std::move(q));
}

const Value& value_of(const PyValue& v) { return v.graph->values()[static_cast<std::size_t>(v.id)]; }

}  // namespace

void bind_vocabulary(py::module_& m) {
  m.doc() = "Firstlight's graph vocabulary: model files build a Graph from these operators.";
  py::class_<PyValue>(m, "Value", "A value of a graph.")
      .def_property_readonly("shape", [](const PyValue& v) { return value_of(v).type.shape; })
      .def("__repr__", [](const PyValue& v) { return "<" + type_text(value_of(v).type) + ">"; });
  py::class_<Graph, std::shared_ptr<Graph>>(m, "Graph", "A model's dataflow graph.")
      .def(py::init<std::string>(), py::arg("family"))
      .def(
          "tokens",
          [](const std::shared_ptr<Graph>& g) {
            return PyValue{g, g->tokens()};
          },
          "The token ids, i32 [T].")
      .def(
          "weight", &declare_weight, py::arg("name"), py::arg("shape"), py::kw_only(),
          py::arg("also") = std::vector<Shape>{}, py::arg("padded") = 0, py::arg("part_of") = py::none(),
          py::arg("at") = std::vector<std::int64_t>{}, py::arg("rows") = py::none(),
          py::arg("transposed") = false, py::arg("or_part") = py::none(),
          "A tensor of the checkpoint. `also`: other stored shapes; `padded`: stored with so many "
          "rows instead, zero beyond the shape.\n\n"
          "With `part_of`, the shape of the stored tensor, a part of it: `at` fixes leading dimensions (the "
          "expert of a stack); `rows` = (first, count) or (first, count, every) takes `count` rows of what "
          "is left, once or in every group of `every` rows: (0, 1, 2) the even ones, (0, d, 2 * d) the first "
          "d of each 2d; `transposed`: what `at` leaves is stored [K, N] and used as [N, K]. All rows of a "
          "stored tensor must belong to some part.\n\n"
          "`or_part` = (name, shape, at, rows): where no tensor `name` is stored, that part of another one.")
      .def(
          "weights",
          [](const Graph& g) {
            std::map<std::string, Shape> stored;
            for (const WeightDecl& w : g.weights()) stored[w.name] = w.part ? w.part->full : w.shape;
            return stored;
          },
          "The tensors of the checkpoint, by name: the shape in which each is stored, when it is not packed.")
      .def("limit_weights", &Graph::limit_weights, py::arg("most"),
           "How many weights may be declared from now on in all.")
      .def("scope", &Graph::set_scope, "The heading of the operators that follow.")
      .def(
          "name", [](Graph& g, const PyValue& v, const std::string& name) { unwrap(g.name(v.id, name)); },
          "Gives a value a name under which it can be asked for.")
      .def(
          "logits", [](Graph& g, const PyValue& v) { g.set_logits(v.id); }, "Marks the result.")
      .def("quantization", &declare_quantization, py::arg("format") = py::none(), py::kw_only(),
           py::arg("block") = std::vector<std::int64_t>{}, py::arg("bits") = 0,
           py::arg("not_converted") = std::vector<std::string>{},
           "The packed weight format that config.json declares: fp8, int, mxfp4, or None. `block`: rows and "
           "columns "
           "that share a scale, 0 for all; `bits` of an integer; `not_converted`: modules that are stored "
           "plain.")
      .def(
          "not_computed",
          [](Graph& g, std::string prefix, std::string reason, std::string copy_of) {
            g.add_not_computed({std::move(prefix), std::move(reason), std::move(copy_of)});
          },
          py::arg("prefix"), py::arg("reason"), py::kw_only(), py::arg("copy_of") = "",
          "Tensors that are known and left out, with a notice. `copy_of`: only if they equal this tensor.")
      .def("__str__", &graph_text);
  for (const OpContract* op : all_contracts()) {
    m.def(
        std::string(op->name).c_str(),
        [op](const py::args& args, const py::kwargs& kwargs) { return call_operator(*op, args, kwargs); },
        describe(*op).c_str());
  }
}

}  // namespace firstlight
