#include "cli/bench_report.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <utility>
#include <vector>

#include "cli/terminal.h"
#include "device/cpu/roofline.h"

namespace firstlight {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* held_as_name(HeldAs held) {
  switch (held) {
    case HeldAs::kStored:
      return "stored";
    case HeldAs::kInt8:
      return "int8";
    case HeldAs::kInt4:
      return "int4";
    case HeldAs::kMxfp4:
      return "mxfp4";
  }
  return "?";
}

/// Seconds below which no machine of these peaks computes the nodes, by what bounds them.
struct Bounds {
  double bytes = 0;
  double flops = 0;
  double memory_seconds = 0;     // all bytes
  double compute_seconds = 0;    // all operations
  double attention_seconds = 0;  // operations of nodes that read the context
};

Bounds bounds_of(const std::vector<NodeCost>& costs, const MachinePeaks& peaks) {
  Bounds b;
  for (const NodeCost& node : costs) {
    const double bytes = node.cost.weight_bytes + node.cost.cache_bytes;
    b.bytes += bytes;
    b.flops += node.cost.flops;
    b.memory_seconds += bytes / peaks.read;
    b.compute_seconds += node.cost.flops / peaks.of(node.arith);
    if (node.reads_context) b.attention_seconds += node.cost.flops / peaks.of(node.arith);
  }
  return b;
}

template <class... Values>
std::string formatted(const char* format, Values... values) {
  char line[256];
  std::snprintf(line, sizeof line, format, values...);
  return line;
}

}  // namespace

MachinePeaks measure_peaks(Model& model) {
  constexpr int kRounds = 7;
  constexpr std::int64_t kBytes = std::int64_t{256} << 20;  // far more than caches hold
  constexpr std::int64_t kAhead = 4096;                     // the reader prefetches behind the end
  std::vector<std::byte> memory(kBytes + kAhead + 64);
  std::memset(memory.data(), 1, memory.size());
  const auto begin = (reinterpret_cast<std::uintptr_t>(memory.data()) + 63) / 64 * 64;
  const auto* aligned = reinterpret_cast<const std::byte*>(begin);
  ThreadPool& pool = model.pool();
  MachinePeaks peaks;
  for (int round = 0; round < kRounds; ++round) {
    peaks.read = std::max(peaks.read, bench::measure_read(pool, model.isa(), aligned, kBytes));
    peaks.f32 = std::max(peaks.f32, bench::measure_peak(pool, bench::f32_chains(model.isa())));
    peaks.bf16 = std::max(peaks.bf16, bench::measure_peak(pool, bench::bf16_chains(model.isa())));
    peaks.int8 = std::max(peaks.int8, bench::measure_peak(pool, bench::int8_chains(model.isa())));
  }
  return peaks;
}

BenchReport::BenchReport(Model& model, const ModelFlags& flags, bool table)
    : model_(&model), table_(table), peaks_(measure_peaks(model)) {
  const LoadOptions& o = model.options();
  json_["model"] = {{"folder", flags.folder},
                    {"family", model.graph().family()},
                    {"load_format", flags.dummy ? "dummy" : "auto"},
                    {"dtype", o.f32 ? "f32" : "bf16"},
                    {"weights", held_as_name(o.settings.weights)},
                    {"experts", held_as_name(o.settings.experts)},
                    {"weight_bytes", model.weight_bytes()}};
  json_["machine"] = {{"isa", isa_name(model.isa())},
                      {"threads", o.threads},
                      {"load_average", bench::load_average()},
                      {"read_bytes_per_second", peaks_.read},
                      {"f32_operations_per_second", peaks_.f32},
                      {"bf16_operations_per_second", peaks_.bf16},
                      {"int8_operations_per_second", peaks_.int8}};
  json_["results"] = Json::array();
  print(formatted("%s, %s arithmetic, weights %s, experts %s: %.0f MB held\n", model.graph().family().c_str(),
                  o.f32 ? "f32" : "bf16", held_as_name(o.settings.weights), held_as_name(o.settings.experts),
                  static_cast<double>(model.weight_bytes()) / 1e6));
  print(formatted("%s, %d threads: read %.1f GB/s, f32 %.0f, bf16 %.0f, int8 %.0f Gop/s; load %.2f\n\n",
                  std::string(isa_name(model.isa())).c_str(), o.threads, peaks_.read / 1e9, peaks_.f32 / 1e9,
                  peaks_.bf16 / 1e9, peaks_.int8 / 1e9, bench::load_average()));
  print(
      "                tokens   depth  streams | tokens/s median     best | MB/token  MFLOP/token  of "
      "bound\n");
}

void BenchReport::add_prefill(std::int64_t tokens, std::int64_t depth, std::int64_t chunk,
                              const MeterTimes& times) {
  std::vector<NodeCost> total;
  std::int64_t steps = 0;
  for (std::int64_t done = 0; done < tokens; ++steps) {
    const std::int64_t rows = std::min(chunk, tokens - done);
    const std::vector<NodeCost> step = step_costs(*model_, 1, rows, depth + done, done + rows == tokens);
    if (total.empty()) total.resize(step.size());
    for (std::size_t n = 0; n < step.size(); ++n) {
      const Cost before = total[n].cost;
      total[n] = step[n];
      total[n].cost.flops += before.flops;
      total[n].cost.weight_bytes += before.weight_bytes;
      total[n].cost.cache_bytes += before.cache_bytes;
    }
    done += rows;
  }
  add({.kind = "prefill", .tokens = tokens, .depth = depth, .streams = 1, .steps = steps}, total, times);
}

void BenchReport::add_decode(std::int64_t tokens, std::int64_t depth, std::int64_t streams,
                             const MeterTimes& times) {
  // Costs are linear in the context, so the step in the middle stands for all.
  std::vector<NodeCost> costs =
      step_costs(*model_, streams, 1, depth + tokens / 2, true, times.distinct_experts);
  for (NodeCost& node : costs) {
    node.cost.flops *= static_cast<double>(tokens);
    node.cost.weight_bytes *= static_cast<double>(tokens);
    node.cost.cache_bytes *= static_cast<double>(tokens);
  }
  add({.kind = "decode", .tokens = tokens * streams, .depth = depth, .streams = streams, .steps = tokens},
      costs, times);
}

void BenchReport::add(const Result& result, const std::vector<NodeCost>& costs, const MeterTimes& times) {
  std::vector<double> seconds;
  Json runs = Json::array();
  for (const MeterTimes::Run& run : times.runs) {
    seconds.push_back(run.seconds);
    runs.push_back({{"seconds", run.seconds}, {"cpu_seconds", run.cpu_seconds}});
  }
  const auto tokens = static_cast<double>(result.tokens);
  const double best = std::ranges::min(seconds);
  const double median = bench::median(seconds);
  const Bounds b = bounds_of(costs, peaks_);
  // A prompt is bound by arithmetic; a generated token by its bytes, and by the arithmetic of attention.
  const bool prefill = std::strcmp(result.kind, "prefill") == 0;
  const double bound = prefill ? b.compute_seconds : b.memory_seconds + b.attention_seconds;
  Json entry = {{"kind", result.kind},
                {"tokens", result.tokens},
                {"depth", result.depth},
                {"streams", result.streams},
                {"steps", result.steps},
                {"runs", std::move(runs)},
                {"tokens_per_second_median", tokens / median},
                {"tokens_per_second_best", tokens / best},
                {"bytes_per_token", b.bytes / tokens},
                {"flops_per_token", b.flops / tokens},
                {"memory_seconds", b.memory_seconds},
                {"compute_seconds", b.compute_seconds},
                {"attention_seconds", b.attention_seconds},
                {"bound_seconds", bound},
                {"share_of_bound_best", bound / best}};
  double distinct = 0;
  double places = 0;
  for (const double d : times.distinct_experts) {
    distinct += d;
    places += d > 0 ? 1 : 0;
  }
  if (places > 0) entry["distinct_experts_per_step"] = distinct / places;
  print(formatted("%-12s  %8lld  %6lld  %7lld | %15.1f  %7.1f | %8.1f  %11.1f  %6.0f %%\n", result.kind,
                  static_cast<long long>(result.tokens), static_cast<long long>(result.depth),
                  static_cast<long long>(result.streams), tokens / median, tokens / best,
                  b.bytes / tokens / 1e6, b.flops / tokens / 1e6, 100 * bound / best));
  if (!times.node_seconds.empty()) add_operators(result, costs, times, entry);
  json_["results"].push_back(std::move(entry));
}

void BenchReport::add_operators(const Result& result, const std::vector<NodeCost>& costs,
                                const MeterTimes& times, Json& entry) {
  struct Row {
    int count = 0;
    double seconds = 0;  // of one run
    double bytes = 0;
    double flops = 0;
    double bound = 0;
  };
  std::map<std::string, Row> rows;
  double total = 0;
  for (std::size_t n = 0; n < costs.size(); ++n) {
    Row& row = rows[node_kind(model_->graph().nodes()[n])];
    const Cost& cost = costs[n].cost;
    const double seconds = times.node_seconds[n] / static_cast<double>(times.runs.size());
    const double bytes = cost.weight_bytes + cost.cache_bytes;
    ++row.count;
    row.seconds += seconds;
    row.bytes += bytes;
    row.flops += cost.flops;
    row.bound += std::max(bytes / peaks_.read, cost.flops / peaks_.of(costs[n].arith));
    total += seconds;
  }
  std::vector<std::pair<std::string, Row>> order(rows.begin(), rows.end());
  std::ranges::stable_sort(order, std::ranges::greater{}, [](const auto& row) { return row.second.seconds; });
  print("    operator                        nodes    ms/step   share     GB/s   Gop/s  of bound\n");
  Json list = Json::array();
  for (const auto& [kind, row] : order) {
    const auto steps = static_cast<double>(result.steps);
    print(formatted("    %-30s  %6d  %9.3f  %5.1f %%  %7.1f  %6.0f  %6.0f %%\n", kind.c_str(), row.count,
                    1e3 * row.seconds / steps, 100 * row.seconds / total, row.bytes / row.seconds / 1e9,
                    row.flops / row.seconds / 1e9, 100 * row.bound / row.seconds));
    list.push_back({{"operator", kind},
                    {"nodes", row.count},
                    {"seconds_per_step", row.seconds / steps},
                    {"share", row.seconds / total},
                    {"bytes_per_step", row.bytes / steps},
                    {"flops_per_step", row.flops / steps},
                    {"share_of_bound", row.bound / row.seconds}});
  }
  entry["operators"] = std::move(list);
}

void BenchReport::print(const std::string& text) {
  if (table_) output_failed_ = output_failed_ || !write_output(text);
}

Status BenchReport::finish(const std::string& json_file) {
  const std::string text = json_.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  if (json_file == "-") {
    output_failed_ = output_failed_ || !write_output(text);
  } else if (!json_file.empty()) {
    std::ofstream file(json_file, std::ios::binary | std::ios::trunc);
    file << text;
    file.close();
    if (!file) return Error{json_file + ": cannot be written"};
  }
  if (output_failed_) return Error{"standard output: cannot be written"};
  return {};
}

}  // namespace firstlight
