// The bundled model: its numbers equal PyTorch's, it recalls planted facts, and it does so through the
// indexer.
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/random.h"
#include "golden_support.h"

namespace firstlight::testing {
namespace {

const std::filesystem::path& demo() {
  static const std::filesystem::path path = std::filesystem::path(FL_REPO_ROOT) / "demo";
  return path;
}

nlohmann::json expected() {
  std::ifstream file(demo() / "eval/expected.json");
  if (!file)
    throw std::runtime_error("demo/eval/expected.json is missing: tools/demo_model/evaluate.py makes it");
  return nlohmann::json::parse(file);
}

/// Sum of -log2 p of each token of the window but the first, given those before it.
double bits_of(const Tensor& ids, const Tensor& logits) {
  const std::int64_t vocab = logits.width();
  double bits = 0;
  for (std::int64_t t = 0; t + 1 < ids.shape[0]; ++t) {
    const float* row = logits.f32() + t * vocab;
    const double top = *std::max_element(row, row + vocab);
    double sum = 0;
    for (std::int64_t v = 0; v < vocab; ++v) sum += std::exp(row[v] - top);
    bits += (top + std::log(sum) - row[ids.i32()[t + 1]]) / std::log(2.0);
  }
  return bits;
}

TEST(DemoModel, HeldOutTextCostsWhatPyTorchSays) {
  const nlohmann::json held_out = expected()["held_out"];
  const Tensors windows = read_tensors(demo() / "eval/heldout.safetensors");
  RunSettings settings;
  settings.kinds = {"logits"};
  settings.threads = 2;
  const Tensors actual = run_case(demo() / "model", windows, settings);
  double bits = 0;
  for (const auto& [name, ids] : windows) {
    bits += bits_of(ids, actual.at(name.substr(0, name.size() - 4) + ".logits"));
  }
  const double per_byte = bits / held_out["stored_bytes"].get<double>();
  const auto want = held_out["stored_bits_per_byte"].get<double>();
  std::printf("bits per byte: %.5f, PyTorch %.5f; whole held-out text %.4f\n", per_byte, want,
              held_out["bits_per_byte"].get<double>());
  EXPECT_NEAR(per_byte, want, 5e-4);
  EXPECT_LE(held_out["bits_per_byte"].get<double>(), 2.5);
}

/// Runs question + answer and counts the prompts whose every answer token is the most likely one. With
/// `random` each row of each sparse layer attends as many positions as before, drawn at random.
double recall(const std::string& prefix, bool random) {
  const Tensors data = read_tensors(demo() / "eval/recall.safetensors");
  auto traced = trace_model(demo() / "model", models_folder());
  const auto checkpoint = Checkpoint::open((demo() / "model").string());
  std::vector<ForwardPrompt> prompts;
  std::vector<std::size_t> answers;  // tokens of each answer
  std::int64_t longest = 0;
  Random draw(prefix.size() + 17);
  for (const auto& [name, ids] : data) {
    if (!name.starts_with(prefix) || !name.ends_with(".ids")) continue;
    ForwardPrompt p{
        .name = name.substr(0, name.size() - 4), .ids = {ids.i32(), ids.i32() + ids.shape[0]}, .forced = {}};
    const Tensor& answer = data.at(p.name + ".answer");
    p.ids.insert(p.ids.end(), answer.i32(), answer.i32() + answer.shape[0]);
    answers.push_back(static_cast<std::size_t>(answer.shape[0]));
    longest = std::max(longest, static_cast<std::int64_t>(p.ids.size()));
    for (const NamedValue& n : traced->graph.names()) {
      if (!random || !n.name.starts_with("topk.")) continue;
      const auto width = traced->graph.values()[static_cast<std::size_t>(n.value)].type.width();
      std::vector<std::int32_t> rows;
      for (std::int64_t t = 0; t < std::ssize(p.ids); ++t) {
        std::vector<std::int32_t> all(static_cast<std::size_t>(t + 1));
        for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int32_t>(i);
        const std::size_t keep = std::min(all.size(), static_cast<std::size_t>(width));
        for (std::size_t i = 0; i < keep; ++i) std::swap(all[i], all[i + draw() % (all.size() - i)]);
        all.resize(keep);
        std::ranges::sort(all);
        all.resize(static_cast<std::size_t>(width), -1);
        rows.insert(rows.end(), all.begin(), all.end());
      }
      p.forced[n.name] = std::move(rows);
    }
    prompts.push_back(std::move(p));
  }
  EXPECT_GE(prompts.size(), 20U);
  LoadOptions load;
  load.f32 = true;
  load.threads = 2;
  load.max_context = traced->max_context;
  load.context = load.step_tokens = load.sampled_rows = longest;
  auto model = Model::load(std::move(traced->graph), *checkpoint, std::move(load));
  const auto values =
      run_forward(**model, prompts, {.kinds = {"logits"}, .chunk = 0, .greedy = 0, .together = false});
  EXPECT_TRUE(values.ok()) << values.error().message;
  int right = 0;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const ForwardValue& v = (*values)[i];
    const auto* logits = reinterpret_cast<const float*>(v.data.data());
    const std::int64_t vocab = v.shape[1];
    bool good = true;
    for (std::size_t t = prompts[i].ids.size() - answers[i]; t < prompts[i].ids.size(); ++t) {
      const float* row = logits + static_cast<std::int64_t>(t - 1) * vocab;
      good = good && std::max_element(row, row + vocab) - row == prompts[i].ids[t];
    }
    right += good;
  }
  return static_cast<double>(right) / static_cast<double>(prompts.size());
}

TEST(DemoModel, RecallsPlantedFactsThroughTheIndexer) {
  double chosen = 0;
  double random = 0;
  const std::vector<std::string> distances = {"d256_", "d384_",
                                              "d512_"};  // 4 x index_topk = 256 tokens and more
  for (const std::string& distance : distances) {
    const double c = recall(distance, false);
    const double r = recall(distance, true);
    std::printf("%s: %.0f %% of the facts with the indexer's positions, %.0f %% with random ones\n",
                distance.c_str(), 100 * c, 100 * r);
    chosen += c / static_cast<double>(distances.size());
    random += r / static_cast<double>(distances.size());
  }
  EXPECT_GE(chosen, 0.9);
  EXPECT_LE(random, 0.6);
}

}  // namespace
}  // namespace firstlight::testing
