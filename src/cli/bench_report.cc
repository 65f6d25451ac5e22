#include "cli/bench_report.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>
#include <vector>

#include "cli/terminal.h"
#include "device/cpu/roofline.h"

namespace firstlight {
namespace {

using Json = nlohmann::ordered_json;

template <class... Values>
std::string formatted(const char* format, Values... values) {
  char line[256];
  std::snprintf(line, sizeof line, format, values...);
  return line;
}

}  // namespace

/// What an entry comes to. Seconds are those of one run.
struct BenchReport::Figures {
  double best = 0;
  double median = 0;
  double cpu_share = 0;  // of the threads' time, in which they had a core
  double bytes = 0;
  double flops = 0;
  double compute_seconds = 0;    // all operations at the machine's peaks
  double attention_seconds = 0;  // those of nodes that read the context
  // Of the runs: the least time that they could take, over the time that they took.
  double best_share = 0;
  double median_share = 0;
  double distinct_experts = 0;  // of a layer and step; 0: not known
};

/// All nodes of a kind in one step of decode, or in one prompt.
struct BenchReport::OperatorRow {
  std::string kind;
  int nodes = 0;
  double best = 0;  // seconds
  double mean = 0;
  double bytes = 0;
  double flops = 0;
  double bound = 0;  // seconds by what bounds each node more, bytes or operations
};

BenchReport::BenchReport(Model& model, const ModelFlags& flags, std::int64_t fast_fill, MachineMeter& machine)
    : model_(&model),
      flags_(flags),
      fast_fill_(fast_fill),
      load_average_(bench::load_average()),
      machine_(&machine) {
  machine.sample_peaks();
}

void BenchReport::add_prefill(std::int64_t tokens, std::int64_t depth, std::int64_t chunk, MeterTimes times) {
  Entry entry;
  entry.prefill = true;
  entry.tokens = tokens;
  entry.depth = depth;
  entry.times = std::move(times);
  for (std::int64_t done = 0; done < tokens; ++entry.steps) {
    const std::int64_t rows = std::min(chunk, tokens - done);
    std::vector<NodeCost> step = step_costs(*model_, 1, rows, depth + done, true, done + rows == tokens);
    for (std::size_t n = 0; n < entry.costs.size(); ++n) {
      step[n].cost.flops += entry.costs[n].cost.flops;
      step[n].cost.weight_bytes += entry.costs[n].cost.weight_bytes;
      step[n].cost.cache_bytes += entry.costs[n].cost.cache_bytes;
    }
    entry.costs = std::move(step);
    done += rows;
  }
  add(std::move(entry));
}

void BenchReport::add_decode(std::int64_t tokens, std::int64_t depth, std::int64_t streams,
                             MeterTimes times) {
  // Costs are linear in the context, so the step in the middle stands for all.
  std::vector<NodeCost> costs =
      step_costs(*model_, streams, 1, depth + tokens / 2, false, true, times.distinct_experts);
  for (NodeCost& node : costs) {
    node.cost.flops *= static_cast<double>(tokens);
    node.cost.weight_bytes *= static_cast<double>(tokens);
    node.cost.cache_bytes *= static_cast<double>(tokens);
  }
  add({.prefill = false,
       .tokens = tokens * streams,
       .depth = depth,
       .streams = streams,
       .steps = tokens,
       .costs = std::move(costs),
       .times = std::move(times)});
}

void BenchReport::add(Entry entry) {
  machine_->sample_peaks();
  const Figures f = figures_of(entry);
  say(dimmed(formatted("%s of %lld tokens, %lld stream%s, depth %lld: %.1f tokens/s",
                       entry.prefill ? "prefill" : "decode", static_cast<long long>(entry.tokens),
                       static_cast<long long>(entry.streams), entry.streams == 1 ? "" : "s",
                       static_cast<long long>(entry.depth), static_cast<double>(entry.tokens) / f.median)));
  entries_.push_back(std::move(entry));
}

BenchReport::Figures BenchReport::figures_of(const Entry& entry) const {
  Figures f;
  std::vector<double> seconds;
  std::vector<double> shares;
  for (const MeterTimes::Run& run : entry.times.runs) {
    seconds.push_back(run.seconds);
    shares.push_back(run.cpu_seconds / (run.seconds * model_->options().threads));
  }
  f.best = std::ranges::min(seconds);
  f.median = bench::median(seconds);
  f.cpu_share = bench::median(shares);
  for (const NodeCost& node : entry.costs) {
    const double bytes = node.cost.weight_bytes + node.cost.cache_bytes;
    const double compute = node.cost.flops / machine_->peaks().of(node.arith);
    f.bytes += bytes;
    f.flops += node.cost.flops;
    f.compute_seconds += compute;
    if (node.reads_context) f.attention_seconds += compute;
  }
  // A prompt is bound by arithmetic; generated tokens by bytes, as fast as the memory was beside the run, and
  // by the arithmetic of attention.
  std::vector<double> of_bound;
  for (const MeterTimes::Run& run : entry.times.runs) {
    const double bound = entry.prefill ? f.compute_seconds : f.bytes / run.read_speed + f.attention_seconds;
    of_bound.push_back(bound / run.seconds);
  }
  f.best_share = std::ranges::max(of_bound);
  f.median_share = bench::median(of_bound);
  double layers = 0;
  for (const double distinct : entry.times.distinct_experts) {
    f.distinct_experts += distinct;
    layers += distinct > 0 ? 1 : 0;
  }
  if (layers > 0) f.distinct_experts /= layers;
  return f;
}

std::vector<BenchReport::OperatorRow> BenchReport::operators_of(const Entry& entry) const {
  const MachinePeaks& peaks = machine_->peaks();
  const double units = entry.prefill ? 1 : static_cast<double>(entry.steps);  // costs are those of a run
  std::map<std::string, OperatorRow> rows;
  for (std::size_t n = 0; n < entry.times.node_best.size(); ++n) {
    const NodeCost& node = entry.costs[n];
    const double bytes = (node.cost.weight_bytes + node.cost.cache_bytes) / units;
    const double flops = node.cost.flops / units;
    OperatorRow& row = rows[node_kind(model_->graph().nodes()[n])];
    ++row.nodes;
    row.best += entry.times.node_best[n];
    row.mean += entry.times.node_mean[n];
    row.bytes += bytes;
    row.flops += flops;
    row.bound += std::max(bytes / peaks.read, flops / peaks.of(node.arith));
  }
  std::vector<OperatorRow> order;
  for (auto& [kind, row] : rows) {
    order.push_back(row);
    order.back().kind = kind;
  }
  std::ranges::stable_sort(order, std::ranges::greater{}, &OperatorRow::best);
  return order;
}

std::string BenchReport::table() const {
  const LoadOptions& o = model_->options();
  const MachinePeaks& peaks = machine_->peaks();
  std::string text =
      formatted("%s, %s arithmetic, weights %s, experts %s: %.0f MB held\n", model_->graph().family().c_str(),
                o.f32 ? "f32" : "bf16", held_name(o.settings.weights), held_name(o.settings.experts),
                static_cast<double>(model_->weight_bytes()) / 1e6);
  text += formatted("%s, %d threads: read %.1f GB/s, f32 %.0f, bf16 %.0f, int8 %.0f Gop/s; load %.2f\n",
                    std::string(isa_name(model_->isa())).c_str(), o.threads, peaks.read / 1e9,
                    peaks.f32 / 1e9, peaks.bf16 / 1e9, peaks.int8 / 1e9, load_average_);
  const std::int64_t computed = fast_fill_ / kPageTokens * kPageTokens;
  const bool repeated = std::ranges::any_of(entries_, [&](const Entry& e) { return e.depth > computed; });
  if (fast_fill_ > 0 && repeated) {
    text += formatted("contexts repeat the cache of their first %lld tokens: not for figures to compare\n",
                      static_cast<long long>(computed));
  }
  text +=
      "\n            tokens   depth streams |  tokens/s median      best   cpu | MB/token MFLOP/token  of "
      "bound\n";
  for (const Entry& e : entries_) {
    const Figures f = figures_of(e);
    const auto tokens = static_cast<double>(e.tokens);
    text += formatted("%-8s  %8lld %7lld %7lld |  %15.1f  %8.1f %3.0f %% | %8.1f %11.1f    %3.0f %%\n",
                      e.prefill ? "prefill" : "decode", static_cast<long long>(e.tokens),
                      static_cast<long long>(e.depth), static_cast<long long>(e.streams), tokens / f.median,
                      tokens / f.best, 100 * f.cpu_share, f.bytes / tokens / 1e6, f.flops / tokens / 1e6,
                      100 * f.median_share);
    if (e.times.node_best.empty()) continue;
    double total = 0;
    for (const double best : e.times.node_best) total += best;
    text += formatted("    %-28s  nodes   ms best      mean   share     GB/s   Gop/s  of bound\n",
                      e.prefill ? "operator, one prompt" : "operator, one step");
    for (const OperatorRow& row : operators_of(e)) {
      text += formatted("    %-28s  %5d  %8.3f  %8.3f  %4.1f %%  %7.1f  %6.0f    %3.0f %%\n",
                        row.kind.c_str(), row.nodes, 1e3 * row.best, 1e3 * row.mean, 100 * row.best / total,
                        row.bytes / row.best / 1e9, row.flops / row.best / 1e9, 100 * row.bound / row.best);
    }
    text += formatted("    %-28s  %5zu  %8.3f  would be %.1f tokens/s\n", "all, each node at its best",
                      e.costs.size(), 1e3 * total,
                      tokens / (e.prefill ? 1 : static_cast<double>(e.steps)) / total);
  }
  return text;
}

Json BenchReport::json() const {
  const LoadOptions& o = model_->options();
  const MachinePeaks& peaks = machine_->peaks();
  Json json = {{"model",
                {{"folder", flags_.folder},
                 {"family", model_->graph().family()},
                 {"load_format", flags_.dummy ? "dummy" : "auto"},
                 {"dtype", o.f32 ? "f32" : "bf16"},
                 {"weights", held_name(o.settings.weights)},
                 {"experts", held_name(o.settings.experts)},
                 {"weight_bytes", model_->weight_bytes()}}},
               {"machine",
                {{"isa", isa_name(model_->isa())},
                 {"threads", o.threads},
                 {"load_average", load_average_},
                 {"read_bytes_per_second", peaks.read},
                 {"f32_operations_per_second", peaks.f32},
                 {"bf16_operations_per_second", peaks.bf16},
                 {"int8_operations_per_second", peaks.int8}}},
               {"fast_fill", fast_fill_},
               {"results", Json::array()}};
  for (const Entry& e : entries_) {
    const Figures f = figures_of(e);
    const auto tokens = static_cast<double>(e.tokens);
    Json runs = Json::array();
    for (const MeterTimes::Run& run : e.times.runs) {
      runs.push_back({{"seconds", run.seconds},
                      {"cpu_seconds", run.cpu_seconds},
                      {"read_bytes_per_second", run.read_speed}});
    }
    Json entry = {{"kind", e.prefill ? "prefill" : "decode"},
                  {"tokens", e.tokens},
                  {"depth", e.depth},
                  {"streams", e.streams},
                  {"steps", e.steps},
                  {"runs", std::move(runs)},
                  {"tokens_per_second_median", tokens / f.median},
                  {"tokens_per_second_best", tokens / f.best},
                  {"bytes_per_token", f.bytes / tokens},
                  {"flops_per_token", f.flops / tokens},
                  {"memory_seconds_at_peak", f.bytes / peaks.read},
                  {"compute_seconds", f.compute_seconds},
                  {"attention_seconds", f.attention_seconds},
                  {"share_of_bound_median", f.median_share},
                  {"share_of_bound_best", f.best_share}};
    if (f.distinct_experts > 0) entry["distinct_experts_per_step"] = f.distinct_experts;
    for (const OperatorRow& row : operators_of(e)) {
      entry["operators"].push_back({{"operator", row.kind},
                                    {"nodes", row.nodes},
                                    {"seconds_best", row.best},
                                    {"seconds_mean", row.mean},
                                    {"bytes", row.bytes},
                                    {"flops", row.flops},
                                    {"bound_seconds", row.bound}});
    }
    json["results"].push_back(std::move(entry));
  }
  return json;
}

}  // namespace firstlight
