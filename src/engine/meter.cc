#include "engine/meter.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "base/random.h"
#include "base/round_up.h"

namespace firstlight {
namespace {

double process_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

/// The value from which a node takes the numbers of its experts, or -1.
ValueId experts_of(const Node& node) {
  if (node.contract->name != "moe_experts") return -1;
  const auto& slots = node.contract->inputs;
  const auto slot = std::ranges::find(slots, std::string_view("experts"), &InputSlot::name);
  return node.inputs[static_cast<std::size_t>(slot - slots.begin())].front();
}

}  // namespace

Meter::Meter(Model& model, std::function<double()> read_speed)
    : model_(&model), runner_(model), read_speed_(std::move(read_speed)) {
  const Graph& graph = model.graph();
  const std::vector<std::string>& kept = model.options().keep;
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    const ValueId value = experts_of(graph.nodes()[n]);
    const bool readable = std::ranges::any_of(graph.names(), [&](const NamedValue& name) {
      return name.value == value && std::ranges::find(kept, name.name) != kept.end();
    });
    if (value >= 0 && readable) choices_.emplace_back(n, value);
  }
}

Result<std::unique_ptr<Meter>> Meter::create(Model& model, std::function<double()> read_speed) {
  std::unique_ptr<Meter> meter(new Meter(model, std::move(read_speed)));
  meter->caches_.resize(static_cast<std::size_t>(model.options().sequences));
  for (SequenceCache& cache : meter->caches_) FL_TRY(model.cache().open(cache));
  FL_TRY(meter->deepen(0, 0));
  return meter;
}

Meter::~Meter() {
  for (SequenceCache& cache : caches_) model_->cache().close(cache);
}

void Meter::rewind() {
  const auto bytes = static_cast<std::size_t>(model_->cache().layout().state_bytes);
  for (std::size_t s = 0; s < caches_.size(); ++s) {
    model_->cache().truncate(caches_[s], depth_);
    if (bytes > 0) std::memcpy(model_->cache().state(caches_[s]), states_[s].data(), bytes);
  }
}

std::vector<std::int32_t> Meter::random_tokens(std::int64_t count) {
  constexpr std::uint64_t kSeed = 5;
  std::vector<std::int32_t> tokens;
  const std::int32_t image = model_->options().image_token_id;
  while (static_cast<std::int64_t>(tokens.size()) < count) {
    const auto id =
        static_cast<std::int32_t>(random_uniform(kSeed, drawn_++) * static_cast<double>(model_->vocab()));
    if (id != image) tokens.push_back(id);
  }
  return tokens;
}

Status Meter::append(std::int64_t position, std::span<const std::int32_t> tokens, std::int64_t chunk,
                     bool sampled, const Progress& progress) {
  const auto total = static_cast<std::int64_t>(tokens.size());
  FL_TRY(model_->cache().grow(caches_[0], position + total));
  for (std::int64_t done = 0; done < total;) {
    const std::int64_t rows = std::min(chunk, total - done);
    const Piece piece{
        .cache = &caches_[0],
        .position = position + done,
        .tokens = tokens.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(rows))};
    done += rows;
    runner_.run({&piece, 1}, sampled && done == total ? Sampled::kLast : Sampled::kNone);
    if (progress) progress(done, total);
  }
  return {};
}

Result<std::int64_t> Meter::repeat_pages(std::int64_t depth) {
  CachePool& cache = model_->cache();
  const std::int64_t bytes = cache.layout().page_bytes;
  const std::vector<std::int64_t>& pages = caches_[0].pages;
  const std::size_t source = pages.size();
  const std::int64_t whole = depth / kPageTokens * kPageTokens;
  FL_TRY(cache.grow(caches_[0], whole));
  for (std::size_t p = source; p < pages.size() && bytes > 0; ++p) {
    std::memcpy(cache.page_base() + pages[p] * bytes, cache.page_base() + pages[p - source] * bytes,
                static_cast<std::size_t>(bytes));
  }
  return whole;
}

Status Meter::deepen(std::int64_t depth, std::int64_t computed, const Progress& progress) {
  check(depth >= depth_, "a context is filled up to less than it holds");
  CachePool& cache = model_->cache();
  if (depth > depth_) {
    rewind();
    std::int64_t at = depth_;
    const auto compute = [&](std::int64_t end) -> Status {
      if (at >= end) return {};
      FL_TRY(append(at, random_tokens(end - at), model_->options().step_tokens, false, progress));
      at = end;
      return {};
    };
    // Whole pages: the last one of an earlier context may have to be completed.
    FL_TRY(
        compute(std::min(depth, std::max(computed / kPageTokens * kPageTokens, round_up(at, kPageTokens)))));
    if (at > 0 && depth - at >= kPageTokens) {
      FL_ASSIGN(at, repeat_pages(depth));
    }
    FL_TRY(compute(depth));
  }
  const auto page_bytes = static_cast<std::size_t>(cache.layout().page_bytes);
  const auto state_bytes = static_cast<std::size_t>(cache.layout().state_bytes);
  for (std::size_t s = 1; s < caches_.size() && depth > depth_; ++s) {
    FL_TRY(cache.grow(caches_[s], depth));
    for (std::size_t p = 0; p < caches_[0].pages.size() && page_bytes > 0; ++p) {
      const auto place = [&](std::size_t sequence) {
        return cache.page_base() + caches_[sequence].pages[p] * cache.layout().page_bytes;
      };
      std::memcpy(place(s), place(0), page_bytes);
    }
    if (state_bytes > 0) std::memcpy(cache.state(caches_[s]), cache.state(caches_[0]), state_bytes);
  }
  depth_ = depth;
  states_.clear();
  for (const SequenceCache& c : caches_) {
    const std::uint8_t* state = cache.state(c);
    states_.emplace_back(state, state + state_bytes);
  }
  return {};
}

Result<MeterTimes> Meter::measure(std::int64_t repeat, bool nodes, const std::function<Status()>& run) {
  MeterTimes times;
  const std::size_t count = nodes ? model_->graph().nodes().size() : 0;
  node_now_.assign(count, 0);
  node_sum_.assign(count, 0);
  node_best_.assign(count, std::numeric_limits<double>::infinity());
  units_ = 0;
  double before = read_speed_();
  for (std::int64_t r = 0; r < repeat; ++r) {
    rewind();
    runner_.time_nodes(node_now_);
    const auto start = std::chrono::steady_clock::now();
    const double cpu = process_seconds();
    const Status status = run();
    times.runs.push_back(
        {.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
         .cpu_seconds = process_seconds() - cpu});
    const double after = read_speed_();
    times.runs.back().read_speed = (std::exchange(before, after) + after) / 2;
    runner_.time_nodes({});
    if (!status.ok()) return Error{status.error()};
  }
  rewind();
  for (const double sum : node_sum_) times.node_mean.push_back(sum / static_cast<double>(units_));
  times.node_best = std::exchange(node_best_, {});
  node_now_.clear();
  return times;
}

void Meter::end_timed_unit() {
  ++units_;
  for (std::size_t n = 0; n < node_now_.size(); ++n) {
    node_sum_[n] += node_now_[n];
    node_best_[n] = std::min(node_best_[n], std::exchange(node_now_[n], 0));
  }
}

Result<MeterTimes> Meter::prefill(std::int64_t tokens, std::int64_t chunk, std::int64_t repeat, bool nodes) {
  check(chunk <= model_->options().step_tokens,
        "a prompt is read in larger steps than the model was loaded for");
  const std::vector<std::int32_t> prompt = random_tokens(tokens);
  // A step without the clock: memory is touched for the first time.
  rewind();
  const std::size_t first = std::min(prompt.size(), static_cast<std::size_t>(chunk));
  FL_TRY(append(depth_, std::span(prompt).first(first), chunk, true));
  return measure(repeat, nodes, [&]() -> Status {
    FL_TRY(append(depth_, prompt, chunk, true));
    end_timed_unit();
    return {};
  });
}

Status Meter::decode_steps(std::span<const std::int32_t> ids, std::int64_t streams,
                           std::vector<double>* distinct) {
  std::vector<Piece> pieces(static_cast<std::size_t>(streams));
  for (std::int64_t t = 0; t < static_cast<std::int64_t>(ids.size()) / streams; ++t) {
    for (std::int64_t s = 0; s < streams; ++s) {
      SequenceCache& cache = caches_[static_cast<std::size_t>(s)];
      FL_TRY(model_->cache().grow(cache, depth_ + t + 1));
      pieces[static_cast<std::size_t>(s)] = {
          .cache = &cache,
          .position = depth_ + t,
          .tokens = ids.subspan(static_cast<std::size_t>(t * streams + s), 1),
          .origin = Origin::kGenerated};
    }
    runner_.run(pieces, Sampled::kLast);
    end_timed_unit();
    if (distinct != nullptr) count_experts(streams, *distinct);
  }
  return {};
}

Result<MeterTimes> Meter::decode(std::int64_t tokens, std::int64_t streams, std::int64_t repeat, bool nodes) {
  check(streams <= static_cast<std::int64_t>(caches_.size()), "more streams are decoded than were opened");
  // Once without the clock: memory is touched for the first time, and the experts are counted.
  rewind();
  const std::vector<std::int32_t> ids = random_tokens(tokens * streams);
  std::vector<double> distinct(model_->graph().nodes().size());
  FL_TRY(decode_steps(ids, streams, &distinct));
  for (double& d : distinct) d /= static_cast<double>(tokens);
  FL_ASSIGN(MeterTimes times, measure(repeat, nodes, [&] { return decode_steps(ids, streams, nullptr); }));
  times.distinct_experts = std::move(distinct);
  return times;
}

void Meter::count_experts(std::int64_t rows, std::vector<double>& distinct) const {
  for (const auto& [node, value] : choices_) {
    const auto* chosen = static_cast<const std::int32_t*>(model_->program().value(value));
    const std::int64_t width = model_->graph().values()[static_cast<std::size_t>(value)].type.width();
    std::vector<std::int32_t> ids(chosen, chosen + rows * width);
    std::ranges::sort(ids);
    distinct[node] += static_cast<double>(std::unique(ids.begin(), ids.end()) - ids.begin());
  }
}

}  // namespace firstlight
