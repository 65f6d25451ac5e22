#include "engine/model.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "base/memory_limit.h"
#include "base/processors.h"
#include "checkpoint/weights.h"
#include "engine/dummy_weights.h"
#include "engine/held_form.h"
#include "engine/inert_settings.h"
#include "engine/packed_key.h"
#include "engine/weight_source.h"
#include "graph/passes.h"

namespace firstlight {
namespace {

/// Bytes of a weight once packed: bf16 stays bf16, f32 is rounded to bf16 outside of f32 mode, unless it is
/// held in fewer bits.
std::int64_t resident_bytes(const WeightSource& w, HeldAs form, bool f32) {
  switch (form) {
    case HeldAs::kInt8:
      return w.elements();
    case HeldAs::kInt4:
      return w.elements() / 16 * 9;
    case HeldAs::kMxfp4:
      return w.elements() / 32 * 17;
    case HeldAs::kStored:
      break;
  }
  return w.elements() * (w.exact_in_bf16() || !f32 ? 2 : 4);
}

/// Adds up what kernels have taken of the weights, and says so now and then.
class LoadProgress {
 public:
  using Show = std::function<void(std::int64_t done, std::int64_t total)>;
  explicit LoadProgress(Show show) : show_(std::move(show)) {}

  /// The next weight, by index, and how many bytes of the files it has.
  void expect(std::int64_t bytes) {
    left_.push_back(bytes);
    total_ += bytes;
  }
  void take(std::size_t weight) {
    done_ += std::exchange(left_[weight], 0);
    const auto now = std::chrono::steady_clock::now();
    if (!show_ || (now - shown_ < std::chrono::milliseconds(200) && done_ < total_)) return;
    shown_ = now;
    show_(done_, total_);
  }
  /// All that the node has read: weights that a kernel keeps reading from the file are never released.
  void take(const Graph& graph, const Node& node) {
    each_weight(graph, node, [&](std::size_t weight, std::string_view) { take(weight); });
  }
  /// The load is over; what `show` refers to may go.
  void end() { show_ = {}; }

 private:
  Show show_;
  std::vector<std::int64_t> left_;
  std::int64_t done_ = 0;
  std::int64_t total_ = 0;
  std::chrono::steady_clock::time_point shown_ = std::chrono::steady_clock::now();
};

}  // namespace

Status Model::choose_context(std::int64_t weight_bytes) {
  if (options_.context > options_.max_context) {
    return Error{"a context of " + std::to_string(options_.context) +
                 " tokens is more than the model's maximum of " + std::to_string(options_.max_context)};
  }
  const CacheLayout layout = cache_layout_of(graph_, options_.f32);
  const StepLimits limits{.tokens = options_.step_tokens, .sampled = options_.sampled_rows};
  // Kernels' scratch is of the order of the buffers; scores of sparse attention take some bytes a token and
  // thread.
  const std::int64_t fixed =
      weight_bytes + options_.sequences * layout.state_bytes + 3 * buffer_bytes_of(graph_, limits, {});
  const std::int64_t page = options_.sequences * layout.page_bytes + options_.threads * kPageTokens * 16;
  const std::int64_t available = available_memory();
  const std::int64_t fits =
      std::min(options_.max_context, std::max<std::int64_t>(available - fixed, 0) / page * kPageTokens);
  const std::string have = bytes_text(available) + " of memory are available";
  const std::int64_t sequences = options_.sequences;
  const std::string many = std::to_string(sequences) + " sequences at once";
  const auto pages_of = [](std::int64_t context) { return (context + kPageTokens - 1) / kPageTokens; };
  const auto caches = [&](std::int64_t pages) {
    return bytes_text(sequences * (layout.state_bytes + pages * layout.page_bytes));
  };
  if (fits < std::min(options_.max_context, kPageTokens)) {
    return Error{"the model needs " + bytes_text(fixed + page) + " (" + bytes_text(weight_bytes) +
                 " of them weights" + (sequences > 1 ? ", " + caches(1) + " caches of " + many : "") + "), " +
                 have};
  }
  if (options_.context > fits) {
    const std::int64_t pages = pages_of(options_.context);
    return Error{"a context of " + std::to_string(options_.context) + " tokens" +
                 (sequences > 1 ? " for each of " + many : "") + " needs " +
                 bytes_text(fixed + pages * page) + " (" + caches(pages) + " of them caches), " + have +
                 "; the largest context that fits is " + std::to_string(fits)};
  }
  if (options_.context == 0) {
    options_.context = fits;
    if (fits < options_.max_context) {
      notices_.push_back("context limited to " + std::to_string(fits) + " of the model's " +
                         std::to_string(options_.max_context) + " tokens" +
                         (sequences > 1 ? " for each of " + many : "") + ": " + have);
    }
  }
  planned_bytes_ = fixed + pages_of(options_.context) * page;
  return {};
}

Status Model::check_tokens(std::span<const std::int32_t> tokens) const {
  for (const std::int32_t id : tokens) {
    if (id < 0 || id >= vocab_) {
      return Error{"token id " + std::to_string(id) + " is outside the vocabulary of " +
                   std::to_string(vocab_)};
    }
    if (id == options_.image_token_id) {
      return Error{"token id " + std::to_string(id) +
                   " stands for an image, and images are refused: vision operators do not exist yet"};
    }
  }
  return {};
}

Result<std::unique_ptr<Model>> Model::prepare(Graph graph, LoadOptions options) {
  FL_TRY(check_together(options.settings, options.f32));
  std::unique_ptr<Model> model(new Model());
  FL_ASSIGN(model->isa_, choose_isa());
  if (options.threads <= 0) options.threads = default_threads();
  if (options.sampled_rows <= 0) options.sampled_rows = options.sequences;
  model->options_ = std::move(options);
  model->graph_ = std::move(graph);
  if (model->options_.fuse) fuse_linears(model->graph_);
  return model;
}

Result<std::unique_ptr<Model>> Model::load(Graph graph, const Checkpoint& checkpoint, LoadOptions options) {
  FL_ASSIGN(std::unique_ptr<Model> model, prepare(std::move(graph), std::move(options)));
  const Graph& g = model->graph_;
  FL_ASSIGN(BoundWeights bound, bind_graph(g, checkpoint));
  model->notices_ = std::move(bound.notices);
  model->notices_.insert(model->notices_.end(), checkpoint.notices().begin(), checkpoint.notices().end());

  std::optional<Kept> kept;
  if (const KeepPacked& keep = model->options_.keep_packed; keep.when != KeepPacked::When::kNever) {
    const LoadOptions& o = model->options_;
    kept = Kept{.path = packed_path(keep, checkpoint.folder(), form_name(o.f32, o.settings)),
                .key = packed_key(g, checkpoint, bound.weights, o.f32, o.settings),
                .stored_bytes = checkpoint.total_bytes()};
  }
  const auto progress = std::make_shared<LoadProgress>(std::exchange(model->options_.progress, {}));
  for (WeightData& data : bound.weights) {
    progress->expect(stored_bytes(data));
    const auto released = [&checkpoint, progress, i = model->sources_.size()](const WeightData& taken) {
      for (const auto& span : stored_spans(taken)) checkpoint.release(span);
      progress->take(i);
    };
    model->sources_.push_back(make_weight_source(std::move(data), released));
  }
  FL_TRY(model->build([&](const Node& node) { progress->take(g, node); }, kept));
  progress->end();
  return model;
}

Result<std::unique_ptr<Model>> Model::load_dummy(Graph graph, LoadOptions options) {
  FL_ASSIGN(std::unique_ptr<Model> model, prepare(std::move(graph), std::move(options)));
  FL_ASSIGN(model->sources_, make_dummy_weights(model->graph_));
  LoadProgress progress(std::exchange(model->options_.progress, {}));
  for (const auto& source : model->sources_) {
    progress.expect(resident_bytes(*source, HeldAs::kStored, model->options_.f32));
  }
  FL_TRY(model->build([&](const Node& node) { progress.take(model->graph_, node); }));
  return model;
}

void Model::keep(PackedCache& cache, std::int64_t stored_bytes) {
  // docs/decisions/0008-packed-cache.md has the measurements.
  constexpr std::int64_t kWorthAFile = std::int64_t{256} << 20;
  const bool pays = cache.bytes() >= kWorthAFile && cache.bytes() / 3 <= stored_bytes / 4;
  if (!cache.complete() && (pays || options_.keep_packed.when == KeepPacked::When::kAlways)) {
    cache.write(options_.write_progress);
  }
  options_.write_progress = {};
  notices_.insert(notices_.end(), cache.notices().begin(), cache.notices().end());
}

Status Model::build(const std::function<void(const Node&)>& packed, const std::optional<Kept>& kept) {
  std::int64_t resident = 0;
  std::vector<const WeightSource*> weights;
  held_.assign(sources_.size(), HeldAs::kStored);
  each_weight(graph_, [&](std::size_t w, const Node& node, std::string_view slot) {
    if (!options_.f32)
      held_[w] = held_form(graph_, node, slot, sources_[w]->stored_form(), options_.settings);
  });
  for (const auto& source : sources_) {
    resident += resident_bytes(*source, held_[weights.size()], options_.f32);
    weights.push_back(source.get());
  }
  const LoadOptions& o = options_;
  const Graph& g = graph_;
  FL_TRY(check_effect(g, o.settings, held_));
  FL_TRY(choose_context(resident));

  pool_ = std::make_unique<ThreadPool>(o.threads);
  ProgramOptions program{.limits = {.tokens = o.step_tokens,
                                    .sampled = o.sampled_rows,
                                    .sequences = o.sequences,
                                    .context = o.context},
                         .isa = isa_,
                         .f32 = o.f32,
                         .threads = o.threads,
                         .settings = o.settings,
                         .keep = {},
                         .pool = pool_.get()};
  std::optional<PackedCache> cache;
  if (kept) {
    cache.emplace(kept->path, kept->key, *pool_);
    program.store = &*cache;
  }
  for (const std::string& name : o.keep) {
    const auto value = g.find(name);
    if (!value) return Error{"the model has no value named " + name};
    program.keep.push_back(*value);
  }
  FL_ASSIGN(program_, Program::compile(g, program, weights, packed));
  vocab_ = g.values()[static_cast<std::size_t>(g.logits())].type.width();
  weight_bytes_ = program_->weight_bytes();
  if (cache) keep(*cache, kept->stored_bytes);
  const std::int64_t pages = o.sequences * ((o.context + kPageTokens - 1) / kPageTokens);
  FL_ASSIGN(cache_, CachePool::create(cache_layout_of(g, o.f32), pages, o.sequences));
  return {};
}

}  // namespace firstlight
