#include "engine/program.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "graph/passes.h"
#include "ops/kernels.h"

namespace firstlight {
namespace {

struct Buffers {
  std::vector<ValueId> values;
  std::vector<Lifetime> lifetimes;
  BufferPlan plan;
};

/// One lifetime a computed value, from its node to its last reader (to the end for logits and kept values).
Buffers plan(const Graph& graph, const StepLimits& limits, const std::vector<ValueId>& keep) {
  Buffers b;
  const auto end = static_cast<std::int32_t>(graph.nodes().size());
  std::vector<std::int32_t> last(graph.values().size(), -1);
  for (std::int32_t n = 0; n < end; ++n) {
    const Node& node = graph.nodes()[static_cast<std::size_t>(n)];
    for (const auto& slot : node.inputs) {
      for (const ValueId v : slot) last[static_cast<std::size_t>(v)] = n;
    }
    for (const ValueId v : node.outputs)
      last[static_cast<std::size_t>(v)] = std::max(n, last[static_cast<std::size_t>(v)]);
  }
  for (const ValueId v : keep) last[static_cast<std::size_t>(v)] = end;
  last[static_cast<std::size_t>(graph.logits())] = end;
  for (std::size_t v = 0; v < graph.values().size(); ++v) {
    const Value& value = graph.values()[v];
    if (value.weight >= 0) continue;
    const std::int64_t rows = value.type.rows == Rows::kSampled ? limits.sampled : limits.tokens;
    b.values.push_back(static_cast<ValueId>(v));
    b.lifetimes.push_back(
        {.bytes = rows * value.type.width() * static_cast<std::int64_t>(dtype_size(value.type.dtype)),
         .first = std::max(value.node, 0),
         .last = std::max(last[v], 0)});
  }
  b.plan = plan_buffers(b.lifetimes);
  return b;
}

std::vector<std::vector<CacheSpec>> declared_caches(const Graph& graph) {
  std::vector<std::vector<CacheSpec>> caches;
  for (const Node& node : graph.nodes()) {
    caches.push_back(node.contract->caches == nullptr ? std::vector<CacheSpec>{}
                                                      : node.contract->caches(graph.spec(node)));
  }
  return caches;
}

}  // namespace

CacheLayout cache_layout_of(const Graph& graph, bool f32) {
  return make_cache_layout(declared_caches(graph), f32);
}

std::int64_t buffer_bytes_of(const Graph& graph, const StepLimits& limits, const std::vector<ValueId>& keep) {
  return plan(graph, limits, keep).plan.bytes;
}

Result<std::unique_ptr<Program>> Program::compile(const Graph& graph, const ProgramOptions& options,
                                                  const std::vector<const WeightSource*>& weights,
                                                  const std::function<void(const Node&)>& packed) {
  std::unique_ptr<Program> program(new Program());
  program->graph_ = &graph;
  program->limits_ = options.limits;
  const CacheLayout layout = cache_layout_of(graph, options.f32);

  std::int64_t scratch = 0;
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    const NodeSpec spec = graph.spec(node);
    KernelContext context{.node = spec,
                          .node_index = static_cast<int>(n),
                          .weights = std::vector<std::vector<const WeightSource*>>(node.inputs.size()),
                          .caches = {},
                          .limits = options.limits,
                          .isa = options.isa,
                          .f32 = options.f32,
                          .threads = options.threads,
                          .settings = options.settings,
                          .pool = options.pool,
                          .store = options.store};
    for (std::size_t s = 0; s < node.inputs.size(); ++s) {
      for (const ValueId v : node.inputs[s]) {
        const Value& value = graph.values()[static_cast<std::size_t>(v)];
        if (value.weight >= 0) context.weights[s].push_back(weights[static_cast<std::size_t>(value.weight)]);
      }
    }
    for (const CacheSlot& slot : layout.nodes[n]) context.caches.push_back({slot.offset, slot.dtype});
    FL_ASSIGN(const MakeKernel make, cpu_kernel(node.contract->name));
    FL_ASSIGN(std::unique_ptr<Kernel> kernel, make(context));
    scratch = std::max(scratch, kernel->scratch_bytes());
    program->nodes_.push_back({.kernel = std::move(kernel), .inputs = {}, .outputs = {}});
    if (packed) packed(node);
  }

  const Buffers buffers = plan(graph, options.limits, options.keep);
  FL_ASSIGN(program->arena_, Reservation::create(buffers.plan.bytes + scratch + 64, "activations"));
  program->scratch_ = program->arena_.data() + buffers.plan.bytes;
  program->place_.assign(graph.values().size(), nullptr);
  for (std::size_t i = 0; i < buffers.values.size(); ++i) {
    program->place_[static_cast<std::size_t>(buffers.values[i])] =
        program->arena_.data() + buffers.plan.offsets[i];
  }
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    Runner& runner = program->nodes_[n];
    for (const auto& slot : node.inputs) {
      for (const ValueId v : slot) {
        if (graph.values()[static_cast<std::size_t>(v)].weight < 0) {
          runner.inputs.push_back(program->place_[static_cast<std::size_t>(v)]);
        }
      }
    }
    for (const ValueId v : node.outputs)
      runner.outputs.push_back(program->place_[static_cast<std::size_t>(v)]);
  }
  return program;
}

void Program::run(const Step& step, ThreadPool& pool, std::span<double> seconds) {
  check(step.rows() > 0 && step.rows() <= limits_.tokens, "a step exceeds the program's tokens");
  check(static_cast<std::int64_t>(step.sampled_rows.size()) <= limits_.sampled,
        "a step samples too many rows");
  std::memcpy(place_[static_cast<std::size_t>(graph_->tokens())], step.tokens.data(),
              step.tokens.size_bytes());
  const auto run_node = [&](Runner& node) {
    node.kernel->run(step, {.inputs = node.inputs, .outputs = node.outputs, .scratch = scratch_}, pool);
  };
  if (seconds.empty()) {
    for (Runner& node : nodes_) run_node(node);
    return;
  }
  check(seconds.size() == nodes_.size(), "a step is timed into too few or too many places");
  using Clock = std::chrono::steady_clock;
  Clock::time_point before = Clock::now();
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    run_node(nodes_[n]);
    const Clock::time_point after = Clock::now();
    seconds[n] += std::chrono::duration<double>(after - before).count();
    before = after;
  }
}

const void* Program::value(ValueId id) const { return place_[static_cast<std::size_t>(id)]; }

std::int64_t Program::weight_bytes() const {
  std::int64_t bytes = 0;
  for (const Runner& node : nodes_) bytes += node.kernel->weight_bytes();
  return bytes;
}

}  // namespace firstlight
