// Loading golden cases, running them through the engine, and comparing. A case is a checkpoint folder with an
// expect.safetensors; names and meaning are those of `firstlight forward`.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "engine/forward.h"
#include "python/tracer.h"

namespace firstlight::testing {

inline const std::filesystem::path& bundled_goldens() {
  static const std::filesystem::path path = std::filesystem::path(FL_REPO_ROOT) / "tests/data/goldens";
  return path;
}

/// The folder of the larger sets: FIRSTLIGHT_SHARED, or ../shared beside the repository.
inline std::filesystem::path shared_goldens() {
  const char* given = std::getenv("FIRSTLIGHT_SHARED");
  return (given != nullptr ? std::filesystem::path(given)
                           : std::filesystem::path(FL_REPO_ROOT) / "../shared") /
         "goldens";
}

struct Tensor {
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<std::uint8_t> data;

  [[nodiscard]] const float* f32() const { return reinterpret_cast<const float*>(data.data()); }
  [[nodiscard]] const std::int32_t* i32() const { return reinterpret_cast<const std::int32_t*>(data.data()); }
  [[nodiscard]] std::int64_t width() const { return shape.size() < 2 ? 1 : element_count(shape) / shape[0]; }
  friend bool operator==(const Tensor&, const Tensor&) = default;
};
using Tensors = std::map<std::string, Tensor>;

inline Tensors read_tensors(const std::filesystem::path& path) {
  const auto file = open_safetensors(path.string());
  Tensors tensors;
  if (!file.ok()) {
    ADD_FAILURE() << file.error().message;
    return tensors;
  }
  for (const NamedTensor& t : file->content.tensors) {
    tensors[t.name] = {t.view.dtype, t.view.shape, {t.view.data, t.view.data + t.view.bytes()}};
  }
  return tensors;
}

struct RunSettings {
  bool f32 = true;
  int threads = 1;
  std::int64_t chunk = 0;
  bool together = false;
  bool fuse = true;
  std::int64_t greedy = 0;
  std::vector<std::string> kinds = {"hidden", "final", "logits", "experts", "topk", "state", "conv"};
  firstlight::RunSettings formats = {};
};

/// A bundled golden's graph with random weights, one thread and what `change(options, traced)` makes of it.
template <class Change>
Result<std::unique_ptr<Model>> dummy_model(const std::string& golden, const Change& change) {
  FL_ASSIGN(TracedModel traced, trace_model(bundled_goldens() / golden, models_folder()));
  LoadOptions load;
  load.threads = 1;
  load.max_context = traced.max_context;
  change(load, traced);
  return Model::load_dummy(std::move(traced.graph), std::move(load));
}

/// Runs all prompts of `expected` (NAME.ids).
inline Tensors run_case(const std::filesystem::path& folder, const Tensors& expected, const RunSettings& s) {
  Tensors out;
  const auto fail = [&](const std::string& message) {
    ADD_FAILURE() << folder << ": " << message;
    return out;
  };
  auto traced = trace_model(folder, models_folder());
  if (!traced.ok()) return fail(traced.error().message);
  const auto checkpoint = Checkpoint::open(folder.string());
  if (!checkpoint.ok()) return fail(checkpoint.error().message);
  std::vector<ForwardPrompt> prompts;
  std::int64_t total = 0;
  std::int64_t longest = 0;
  for (const auto& [name, t] : expected) {
    if (!name.ends_with(".ids")) continue;
    prompts.push_back(
        {.name = name.substr(0, name.size() - 4), .ids = {t.i32(), t.i32() + t.shape[0]}, .forced = {}});
    total += t.shape[0];
    longest = std::max(longest, t.shape[0]);
  }
  LoadOptions load;
  load.f32 = s.f32;
  load.threads = s.threads;
  load.max_context = traced->max_context;
  load.context = longest + s.greedy;
  load.step_tokens = load.sampled_rows = s.together ? total : longest;
  load.sequences = s.together ? static_cast<std::int64_t>(prompts.size()) : 1;
  load.fuse = s.fuse;
  load.settings = s.formats;
  load.keep = kept_names(traced->graph, s.kinds);
  auto model = Model::load(std::move(traced->graph), *checkpoint, std::move(load));
  if (!model.ok()) return fail(model.error().message);
  auto values = run_forward(**model, prompts, {s.kinds, s.chunk, s.greedy, s.together});
  if (!values.ok()) return fail(values.error().message);
  for (ForwardValue& v : *values) out[v.name] = {v.dtype, v.shape, std::move(v.data)};
  return out;
}

/// max |a - b| / max |b| over the last rows that `expected` has.
inline double relative_difference(const Tensor& actual, const Tensor& expected) {
  const std::int64_t n = element_count(expected.shape);
  const std::int64_t skip = element_count(actual.shape) - n;
  if (skip < 0) return HUGE_VAL;
  double worst = 0;
  double size = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double b = expected.f32()[i];
    const double difference = std::abs(actual.f32()[skip + i] - b);
    if (!(difference < 1e300)) return HUGE_VAL;
    worst = std::max(worst, difference);
    size = std::max(size, std::abs(b));
  }
  return size > 0 ? worst / size : worst;
}

/// One row as a tensor of its own.
inline Tensor row_of(const Tensor& t, std::int64_t row) {
  const std::int64_t bytes = static_cast<std::int64_t>(t.data.size()) / t.shape[0];
  Tensor one{t.dtype, t.shape, {t.data.begin() + row * bytes, t.data.begin() + (row + 1) * bytes}};
  one.shape[0] = 1;
  return one;
}

/// Rows whose choices differ as sets although the gap of the row is at least `limit`; those below are counted
/// in `excused`.
inline int wrong_choices(const Tensor& actual, const Tensor& expected, const Tensor* gap, float limit,
                         int& excused) {
  const auto row = [](const Tensor& t, std::int64_t r) {
    std::vector<std::int32_t> set(t.i32() + r * t.width(), t.i32() + (r + 1) * t.width());
    std::erase(set, -1);
    std::ranges::sort(set);
    return set;
  };
  int wrong = 0;
  for (std::int64_t r = 0; r < expected.shape[0]; ++r) {
    if (row(actual, r) == row(expected, r)) continue;
    ++(gap != nullptr && gap->f32()[r] < limit ? excused : wrong);
  }
  return wrong;
}

/// KL(reference || ours) of one row, counted from the end (1: the last), in nats.
inline double divergence(const Tensor& reference, const Tensor& ours, std::int64_t from_end) {
  const std::int64_t width = reference.width();
  const auto log_probabilities = [&](const Tensor& t) {
    const float* x = t.f32() + (t.shape[0] - from_end) * width;
    const double top = *std::max_element(x, x + width);
    double sum = 0;
    for (std::int64_t i = 0; i < width; ++i) sum += std::exp(x[i] - top);
    std::vector<double> out;
    for (std::int64_t i = 0; i < width; ++i) out.push_back(x[i] - top - std::log(sum));
    return out;
  };
  double total = 0;
  const std::vector<double> p = log_probabilities(reference);
  const std::vector<double> q = log_probabilities(ours);
  for (std::size_t i = 0; i < p.size(); ++i) total += std::exp(p[i]) * (p[i] - q[i]);
  return total;
}

}  // namespace firstlight::testing
