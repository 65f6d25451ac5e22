#include "engine/forward.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "engine/step_runner.h"

namespace firstlight {
namespace {

std::string kind_of(const std::string& name) { return name.substr(0, name.find('.')); }

bool wants(const std::vector<std::string>& kinds, const std::string& kind) {
  return std::ranges::find(kinds, kind) != kinds.end();
}

/// A recurrent state is not a value but something a node keeps; the named value only says which node.
bool is_state(const std::string& kind) { return kind == "state" || kind == "conv"; }

struct Run {
  const ForwardPrompt* prompt = nullptr;
  SequenceCache cache;
  std::int64_t position = 0;
  std::vector<std::int32_t> greedy;
  std::vector<ForwardValue> values;  // by index of `dumped`
};

/// A value that is copied after each step.
struct Dumped {
  std::string name;
  ValueId id;
};

class Forward {
 public:
  Forward(Model& model, const ForwardOptions& options) : model_(model), options_(options), runner_(model) {}

  Result<std::vector<ForwardValue>> all(const std::vector<ForwardPrompt>& prompts) {
    FL_TRY(validate(prompts));
    for (const NamedValue& n : model_.graph().names()) {
      if (wants(options_.kinds, kind_of(n.name)) && !is_state(kind_of(n.name)))
        dumped_.push_back({n.name, n.value});
    }
    if (wants(options_.kinds, "logits")) dumped_.push_back({"logits", model_.graph().logits()});
    std::vector<ForwardValue> out;
    const std::size_t group = options_.together ? prompts.size() : 1;
    for (std::size_t first = 0; first < prompts.size(); first += group) {
      FL_TRY(run_group({prompts.data() + first, group}, out));
    }
    return out;
  }

 private:
  Status validate(const std::vector<ForwardPrompt>& prompts) const {
    for (const ForwardPrompt& p : prompts) {
      const auto length = static_cast<std::int64_t>(p.ids.size());
      if (length == 0) return Error{"prompt " + p.name + " is empty"};
      if (length + options_.greedy > model_.context()) {
        return Error{
            "prompt " + p.name + " has " + std::to_string(length) + " tokens" +
            (options_.greedy > 0 ? " and " + std::to_string(options_.greedy) + " are to follow" : "") +
            ", the context holds " + std::to_string(model_.context())};
      }
      if (const Status status = model_.check_tokens(p.ids); !status.ok()) {
        return Error{"prompt " + p.name + ": " + status.error().message};
      }
      for (const auto& [name, rows] : p.forced) FL_TRY(validate_forced(p, name, rows));
    }
    return {};
  }

  Status validate_forced(const ForwardPrompt& p, const std::string& name,
                         const std::vector<std::int32_t>& rows) const {
    const auto id = model_.graph().find(name);
    if (!id) return Error{"prompt " + p.name + ": the model makes no choice named " + name};
    const std::int64_t width = value(*id).type.width();
    const auto length = static_cast<std::int64_t>(p.ids.size());
    const std::string where = "prompt " + p.name + ": " + name;
    if (static_cast<std::int64_t>(rows.size()) != length * width) {
      return Error{where + " must have shape [" + std::to_string(length) + ", " + std::to_string(width) +
                   "]"};
    }
    const Node& node = model_.graph().nodes()[static_cast<std::size_t>(value(*id).node)];
    const bool positions = node.contract->name == "dsa_index";
    const std::int64_t count = positions ? 0 : model_.graph().spec(node).input("logits").width();
    for (std::int64_t t = 0; t < length; ++t) {
      const std::int32_t* row = rows.data() + t * width;
      const std::int64_t end = positions ? t + 1 : count;
      bool ended = false;
      for (std::int64_t i = 0; i < width; ++i) {
        ended = ended || (positions && row[i] == -1);
        const bool good =
            ended ? row[i] == -1 : row[i] >= 0 && row[i] < end && (i == 0 || row[i] > row[i - 1]);
        if (!good) {
          return Error{where + ", row " + std::to_string(t) +
                       (positions ? ": positions must ascend from 0 to the row's own, then -1"
                                  : ": expert ids must ascend within 0.." + std::to_string(count - 1))};
        }
      }
    }
    // Several layers may share one choice: what is forced must be the same for all of them.
    for (const NamedValue& other : model_.graph().names()) {
      if (other.value != *id || other.name == name) continue;
      const auto theirs = p.forced.find(other.name);
      if (theirs != p.forced.end() && theirs->second != rows) {
        return Error{where + " and " + other.name + " are one shared choice but differ"};
      }
    }
    return {};
  }

  Status run_group(std::span<const ForwardPrompt> prompts, std::vector<ForwardValue>& out) {
    std::vector<Run> runs(prompts.size());
    Status status;
    for (std::size_t i = 0; i < runs.size() && status.ok(); ++i) {
      runs[i].prompt = &prompts[i];
      status = start(runs[i]);
    }
    if (status.ok()) {
      while (step(runs)) {
      }
      for (Run& run : runs) {
        for (ForwardValue& v : run.values) out.push_back(std::move(v));
        export_states(run, out);
      }
      continue_greedily(runs, out);
    }
    for (Run& run : runs) model_.cache().close(run.cache);
    return status;
  }

  Status start(Run& run) {
    const auto length = static_cast<std::int64_t>(run.prompt->ids.size());
    FL_TRY(model_.cache().open(run.cache));
    FL_TRY(model_.cache().grow(run.cache, length + options_.greedy));
    for (const Dumped& d : dumped_) {
      const ValueType& type = value(d.id).type;
      ForwardValue v{
          .name = run.prompt->name + "." + d.name, .dtype = type.dtype, .shape = {length}, .data = {}};
      v.shape.insert(v.shape.end(), type.shape.begin(), type.shape.end());
      v.data.resize(static_cast<std::size_t>(length * type.width()) * dtype_size(type.dtype));
      run.values.push_back(std::move(v));
    }
    return {};
  }

  /// One step over all prompts that have tokens left; false when none has.
  bool step(std::vector<Run>& runs) {
    std::vector<Piece> pieces;
    std::vector<Run*> stepped;
    std::int64_t room = model_.options().step_tokens;
    for (Run& run : runs) {
      const std::int64_t left = static_cast<std::int64_t>(run.prompt->ids.size()) - run.position;
      const std::int64_t rows = std::min({left, room, options_.chunk > 0 ? options_.chunk : left});
      if (rows == 0) continue;
      pieces.push_back(
          {.cache = &run.cache,
           .position = run.position,
           .tokens = std::span(run.prompt->ids)
                         .subspan(static_cast<std::size_t>(run.position), static_cast<std::size_t>(rows))});
      stepped.push_back(&run);
      room -= rows;
    }
    if (pieces.empty()) return false;
    const bool logits = wants(options_.kinds, "logits");
    runner_.run(pieces,
                logits                ? Sampled::kAll
                : options_.greedy > 0 ? Sampled::kLast
                                      : Sampled::kNone,
                forced_rows(pieces, stepped));
    std::int64_t row = 0;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      Run& run = *stepped[i];
      const auto rows = static_cast<std::int64_t>(pieces[i].tokens.size());
      for (std::size_t d = 0; d < dumped_.size(); ++d)
        copy_rows(dumped_[d].id, row, rows, run.position, run.values[d]);
      run.position += rows;
      row += rows;
      if (options_.greedy > 0 && run.position == static_cast<std::int64_t>(run.prompt->ids.size())) {
        run.greedy.push_back(best(runner_.logits(logits ? row - 1 : static_cast<std::int64_t>(i))));
      }
    }
    return true;
  }

  void copy_rows(ValueId id, std::int64_t from, std::int64_t rows, std::int64_t to, ForwardValue& v) const {
    const auto bytes = static_cast<std::size_t>(value(id).type.width()) * dtype_size(v.dtype);
    std::memcpy(
        v.data.data() + static_cast<std::size_t>(to) * bytes,
        static_cast<const std::uint8_t*>(model_.program().value(id)) + static_cast<std::size_t>(from) * bytes,
        static_cast<std::size_t>(rows) * bytes);
  }

  /// By node: the forced rows of this step, one after the other.
  std::span<const std::int32_t* const> forced_rows(const std::vector<Piece>& pieces,
                                                   const std::vector<Run*>& stepped) {
    forced_.assign(model_.graph().nodes().size(), nullptr);
    storage_.clear();
    bool any = false;
    for (const auto& [name, rows] : stepped[0]->prompt->forced) {
      const Value& v = value(*model_.graph().find(name));
      const auto width = static_cast<std::size_t>(v.type.width());
      std::vector<std::int32_t>& all = storage_.emplace_back();
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        const std::vector<std::int32_t>& own = stepped[i]->prompt->forced.at(name);
        const auto begin =
            own.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(pieces[i].position) * width);
        all.insert(all.end(), begin, begin + static_cast<std::ptrdiff_t>(pieces[i].tokens.size() * width));
      }
      forced_[static_cast<std::size_t>(v.node)] = all.data();
      any = true;
    }
    return any ? std::span<const std::int32_t* const>(forced_) : std::span<const std::int32_t* const>();
  }

  /// "conv.3" of "conv.3.q".
  static std::string stream_group(const std::string& name) { return name.substr(0, name.rfind('.')); }

  /// The groups of streams that differ in shape.
  [[nodiscard]] std::set<std::string> uneven_streams() const {
    std::map<std::string, Shape> shapes;
    std::set<std::string> uneven;
    for (const NamedValue& n : model_.graph().names()) {
      if (kind_of(n.name) != "conv") continue;
      const Shape& shape = value(n.value).type.shape;
      const auto [it, fresh] = shapes.emplace(stream_group(n.name), shape);
      if (!fresh && it->second != shape) uneven.insert(it->first);
    }
    return uneven;
  }

  void export_states(const Run& run, std::vector<ForwardValue>& out) const {
    const Graph& graph = model_.graph();
    const std::uint8_t* block = model_.cache().state(run.cache);
    std::map<std::string, std::size_t> streams;  // "p0.conv.3" -> index in out
    const std::set<std::string> uneven = uneven_streams();
    for (const NamedValue& n : graph.names()) {
      const std::string kind = kind_of(n.name);
      if (!is_state(kind) || !wants(options_.kinds, kind)) continue;
      const Kernel& kernel = model_.program().kernel(static_cast<std::size_t>(value(n.value).node));
      const std::vector<StateValue> states = kernel.state_values();
      for (std::size_t i = 0; i < states.size(); ++i) {
        if (states[i].name != kind) continue;
        std::vector<float> data(static_cast<std::size_t>(element_count(states[i].shape)));
        kernel.export_state(i, block, run.position, data.data());
        // "conv.3.q", "conv.3.k", "conv.3.v" are streams of one value [3, taps - 1, channels], or three
        // values [taps - 1, channels] where they differ in width.
        const bool stacked = kind == "conv" && !uneven.contains(stream_group(n.name));
        const std::string name = run.prompt->name + "." + (stacked ? stream_group(n.name) : n.name);
        const auto [it, fresh] = streams.emplace(name, out.size());
        if (fresh) {
          out.push_back({.name = name, .dtype = DType::kF32, .shape = states[i].shape, .data = {}});
          if (stacked) out.back().shape.insert(out.back().shape.begin(), 0);
        }
        ForwardValue& v = out[it->second];
        if (stacked) ++v.shape[0];
        const auto* bytes = reinterpret_cast<const std::uint8_t*>(data.data());
        v.data.insert(v.data.end(), bytes, bytes + data.size() * sizeof(float));
      }
    }
  }

  void continue_greedily(std::vector<Run>& runs, std::vector<ForwardValue>& out) {
    for (std::int64_t n = 1; n < options_.greedy; ++n) {
      std::vector<Piece> pieces;
      for (Run& run : runs) {
        pieces.push_back({.cache = &run.cache, .position = run.position, .tokens = {&run.greedy.back(), 1}});
      }
      runner_.run(pieces, Sampled::kLast);
      for (std::size_t i = 0; i < runs.size(); ++i) {
        ++runs[i].position;
        runs[i].greedy.push_back(best(runner_.logits(static_cast<std::int64_t>(i))));
      }
    }
    if (options_.greedy == 0) return;
    for (const Run& run : runs) {
      ForwardValue v{
          .name = run.prompt->name + ".greedy", .dtype = DType::kI32, .shape = {options_.greedy}, .data = {}};
      const auto* bytes = reinterpret_cast<const std::uint8_t*>(run.greedy.data());
      v.data.assign(bytes, bytes + run.greedy.size() * sizeof(std::int32_t));
      out.push_back(std::move(v));
    }
  }

  /// The highest logit; ties: the lower id.
  static std::int32_t best(std::span<const float> logits) {
    return static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
  }
  [[nodiscard]] const Value& value(ValueId id) const {
    return model_.graph().values()[static_cast<std::size_t>(id)];
  }

  Model& model_;
  const ForwardOptions& options_;
  StepRunner runner_;
  std::vector<Dumped> dumped_;
  std::vector<const std::int32_t*> forced_;         // by node
  std::vector<std::vector<std::int32_t>> storage_;  // what forced_ points to
};

}  // namespace

const std::vector<std::string>& default_value_kinds() {
  static const std::vector<std::string> kinds{"hidden", "final", "logits", "experts", "topk"};
  return kinds;
}
const std::vector<std::string>& request_value_kinds() {
  static const std::vector<std::string> kinds{"state", "conv", "mixed_attn", "mixed_mlp"};
  return kinds;
}

std::vector<std::string> kept_names(const Graph& graph, const std::vector<std::string>& kinds) {
  std::vector<std::string> names;
  for (const NamedValue& n : graph.names()) {
    if (wants(kinds, kind_of(n.name)) && !is_state(kind_of(n.name))) names.push_back(n.name);
  }
  return names;
}

Result<std::vector<ForwardValue>> run_forward(Model& model, const std::vector<ForwardPrompt>& prompts,
                                              const ForwardOptions& options) {
  return Forward(model, options).all(prompts);
}

}  // namespace firstlight
