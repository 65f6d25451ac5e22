// firstlight inspect: what a checkpoint folder asks for, from its config.json alone.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include "base/memory_limit.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "cli/validators.h"
#include "engine/program.h"
#include "graph/passes.h"
#include "ops/kernels.h"
#include "ops/registry.h"
#include "python/tracer.h"

namespace firstlight {
namespace {

struct Flags {
  std::string folder;
  bool graph = false;
  bool fused = false;
};

std::string summary(const TracedModel& model) {
  const Graph& graph = model.graph;
  std::map<std::string, int> uses;
  Cost cost;
  for (const Node& node : graph.nodes()) {
    ++uses[std::string(node.contract->name)];
    const Cost one = node.contract->cost(graph.spec(node), {.tokens = 1, .sampled = 1, .context = 0});
    cost.flops += one.flops;
    cost.weight_bytes += one.weight_bytes;
  }
  std::int64_t parameters = 0;
  for (const WeightDecl& w : graph.weights()) parameters += element_count(w.shape);
  const CacheLayout layout = cache_layout_of(graph, false);
  std::string text = "family:       " + graph.family() + "\n";
  text += "parameters:   " + std::to_string(parameters) + " in " + std::to_string(graph.weights().size()) +
          " tensors\n";
  text += "context:      " + std::to_string(model.max_context) + " tokens\n";
  text += "vocabulary:   " + std::to_string(model.vocab_size) + "\n";
  text += "cache:        " + bytes_text(layout.page_bytes / kPageTokens) + " a token, " +
          bytes_text(layout.state_bytes) + " a sequence (bf16 mode)\n";
  char line[160];
  std::snprintf(line, sizeof line, "one token:    %.3g GFLOP, %s of weights read\n", cost.flops / 1e9,
                bytes_text(static_cast<std::int64_t>(cost.weight_bytes)).c_str());
  text += line;
  text += "operators:\n";
  for (const auto& [name, count] : uses) {
    const auto contract = find_contract(name);
    std::snprintf(line, sizeof line, "  %-14s %6d x  cpu: %-4s shard: %-10s ", name.c_str(), count,
                  cpu_kernel(name).ok() ? "yes" : "no",
                  contract.ok() ? std::string(shard_rule_name((*contract)->shard)).c_str() : "");
    text += line;
    text += (contract.ok() ? std::string((*contract)->equation) : "") + "\n";
  }
  return text;
}

/// What the fusions of each kind of node save.
std::string fusions_text(const Graph& graph) {
  struct Saving {
    int nodes = 0;
    std::int64_t bytes = 0;
  };
  std::map<std::string, Saving> savings;
  for (const Node& node : graph.nodes()) {
    const std::int64_t bytes = saved_bytes(graph, node);
    if (bytes == 0) continue;
    std::string kind(node.contract->name);
    kind += " of " + std::to_string(node.inputs[1].size()) + " weights";
    ++savings[kind].nodes;
    savings[kind].bytes += bytes;
  }
  std::string text = "\nfusions, and bytes of values that they do not read again, a token:\n";
  for (const auto& [kind, saving] : savings) {
    char line[160];
    std::snprintf(line, sizeof line, "  %-24s %5d x  %s\n", kind.c_str(), saving.nodes,
                  bytes_text(saving.bytes).c_str());
    text += line;
  }
  return text;
}

Status run(const Flags& flags) {
  FL_ASSIGN(TracedModel model, trace_model(flags.folder, models_folder()));
  if (flags.fused) fuse_linears(model.graph);
  std::string text = flags.graph ? graph_text(model.graph) : summary(model);
  if (flags.fused) text += fusions_text(model.graph);
  if (!write_output(text)) return Error{"standard output: cannot be written"};
  return {};
}

}  // namespace

Command add_inspect(CLI::App& parent) {
  CLI::App* app =
      parent.add_subcommand("inspect", "Show what a checkpoint folder needs, from its config.json alone");
  auto flags = std::make_shared<Flags>();
  app->add_option("DIR", flags->folder, "Checkpoint folder")->required()->check(not_empty());
  app->add_flag("--graph", flags->graph, "Print the whole graph, one operator a line");
  app->add_flag("--fused", flags->fused, "After the fusions that a run applies");
  return {app, [flags] {
            const Status status = run(*flags);
            return status.ok() ? kExitSuccess : input_failure(status.error());
          }};
}

}  // namespace firstlight
