// A setting that would change nothing for a model is an error that names its flag.
#include "checkpoint/test_folder.h"
#include "engine/model.h"
#include "golden_support.h"

namespace firstlight::testing {
namespace {

/// The error of loading a bundled golden so; "" when it loads.
std::string load_error(const std::string& golden, const firstlight::RunSettings& settings, bool f32 = false) {
  const std::string folder = (bundled_goldens() / golden).string();
  auto traced = trace_model(folder, models_folder());
  check(traced.ok(), "traced");
  const auto checkpoint = Checkpoint::open(folder);
  check(checkpoint.ok(), "opened");
  LoadOptions load;
  load.f32 = f32;
  load.threads = 1;
  load.max_context = traced->max_context;
  load.context = 64;
  load.settings = settings;
  const auto model = Model::load(std::move(traced->graph), *checkpoint, std::move(load));
  return model.ok() ? "" : model.error().message;
}

TEST(Settings, ThoseWithoutEffectAreNamed) {
  struct Case {
    const char* flag;
    firstlight::RunSettings settings;
    const char* without;  // a golden for which it means nothing
    const char* with;     // one for which it does
  };
  const HeldAs int8 = HeldAs::kInt8;
  const Case cases[] = {
      {"--quantize-experts", {.experts = int8}, "llama3_scaled", "mixtral"},
      {"--quantize-experts", {.experts = int8}, "gpt_oss", "mixtral"},  // stored in 4 bits
      {"--activations 8", {.wide_activations = false}, "mixtral", ""},
      {"--activations 8", {.experts = int8, .wide_activations = false}, "mixtral", ""},
      {"--mla-prefill", {.expanded_prefill = true}, "llama3_scaled", "kimi_linear_b"},
      {"--mla-prefill", {.expanded_prefill = true}, "deepseek_v32_b", "kimi_linear_b"},  // all of it sparse
      {"--key-search", {.key_search = KeySearch::kFull}, "kimi_linear_b", "deepseek_v32_b"},
      {"--candidates", {.candidates = 64}, "deepseek_v32_b", ""},
      {"--min-context", {.min_context = 64}, "deepseek_v32_b", ""},
  };
  for (const Case& one : cases) {
    const std::string error = load_error(one.without, one.settings);
    EXPECT_TRUE(contains(error, one.flag) && contains(error, "has no effect")) << one.flag << ": " << error;
    if (*one.with == '\0') continue;
    EXPECT_EQ(load_error(one.with, one.settings), "") << one.flag;
  }
  EXPECT_EQ(load_error("mixtral", {.weights = int8, .experts = int8, .wide_activations = false}), "");
  EXPECT_EQ(
      load_error("deepseek_v32_b", {.key_search = KeySearch::kTwoStage, .candidates = 64, .min_context = 64}),
      "");
  EXPECT_TRUE(contains(load_error("mixtral", {.wide_activations = false}, true), "--activations 8"));
  EXPECT_TRUE(contains(load_error("mixtral", {.weights = int8, .experts = int8}, true), "--dtype f32"));
}

}  // namespace
}  // namespace firstlight::testing
