// What the formats of weights cost: mean KL of next-token distributions against f32, beside that of bf16.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "golden_support.h"

namespace firstlight::testing {
namespace {

/// Mean over all rows of all prompts, in nats.
double mean_divergence(const Tensors& reference, const Tensors& ours) {
  double sum = 0;
  double rows = 0;
  for (const auto& [name, logits] : reference) {
    if (!name.ends_with(".logits")) continue;
    const auto other = ours.find(name);
    EXPECT_NE(other, ours.end());
    if (other == ours.end()) continue;
    for (std::int64_t r = logits.shape[0]; r > 0; --r) sum += divergence(logits, other->second, r);
    rows += static_cast<double>(logits.shape[0]);
  }
  return sum / rows;
}

Tensors logits_of(const std::filesystem::path& folder, const Tensors& prompts, bool f32, HeldAs weights,
                  HeldAs experts) {
  RunSettings settings;
  settings.f32 = f32;
  settings.threads = 2;
  settings.kinds = {"logits"};
  settings.formats.weights = weights;
  settings.formats.experts = experts;
  return run_case(folder, prompts, settings);
}

struct Format {
  const char* name;
  HeldAs weights;
  HeldAs experts;
};
constexpr Format kFormats[] = {{"bf16", HeldAs::kStored, HeldAs::kStored},
                               {"int8", HeldAs::kInt8, HeldAs::kInt8},
                               {"int4", HeldAs::kInt4, HeldAs::kInt4},
                               {"mxfp4", HeldAs::kMxfp4, HeldAs::kMxfp4},
                               {"int8+mxfp4 experts", HeldAs::kInt8, HeldAs::kMxfp4}};

/// By name of the format.
std::map<std::string, double> costs(const std::filesystem::path& folder, const Tensors& prompts) {
  const Tensors exact = logits_of(folder, prompts, true, HeldAs::kStored, HeldAs::kStored);
  std::map<std::string, double> out;
  std::printf("%s: mean KL against f32:", folder.filename().c_str());
  for (const Format& f : kFormats) {
    out[f.name] = mean_divergence(exact, logits_of(folder, prompts, false, f.weights, f.experts));
    std::printf("  %s %.3g", f.name, out[f.name]);
  }
  std::printf("\n");
  return out;
}

/// What rounding the weights alone costs in PyTorch (tests/oracle/format_costs.py).
nlohmann::json costs_in_pytorch() {
  std::ifstream file(std::filesystem::path(FL_REPO_ROOT) / "demo/eval/format_costs.json");
  if (!file)
    throw std::runtime_error("demo/eval/format_costs.json is missing: format_costs.py --write makes it");
  return nlohmann::json::parse(file)["mean_kl"];
}

TEST(Formats, EightBitsCostLittleAndFourWhatRoundingTheWeightsDoes) {
  const std::filesystem::path demo = std::filesystem::path(FL_REPO_ROOT) / "demo";
  const auto kl = costs(demo / "model", read_tensors(demo / "eval/heldout.safetensors"));
  const nlohmann::json expected = costs_in_pytorch();
  for (const char* name : {"int4", "mxfp4"}) {
    EXPECT_LE(kl.at(name), 1.1 * expected[name].get<double>()) << name;
    EXPECT_GE(kl.at(name), 0.9 * expected[name].get<double>()) << name;
  }
  // 8 bits: at most twice what rounding every result to bf16 costs the reference.
  EXPECT_LE(kl.at("int8"), 2 * expected["bf16_steps"].get<double>());
  EXPECT_LE(kl.at("bf16"), expected["bf16_steps"].get<double>());
}

}  // namespace
}  // namespace firstlight::testing
