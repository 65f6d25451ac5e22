// Dummy weights: any config.json gives a model that runs, the same one each time.
#include "engine/dummy_weights.h"

#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "engine/session.h"
#include "golden_cases.h"
#include "golden_support.h"

namespace firstlight::testing {
namespace {

std::vector<std::string> config_folders() {
  std::vector<std::string> folders = {std::string(FL_REPO_ROOT) + "/tests/data/bailing_moe3"};
  for (const Family& family : families()) {
    for (const std::string& name : family.bundled) folders.push_back((bundled_goldens() / name).string());
  }
  return folders;
}

class Dummy : public ::testing::TestWithParam<std::string> {
 protected:
  static TracedModel traced() {
    auto model = trace_model(GetParam(), models_folder());
    EXPECT_TRUE(model.ok()) << model.error().message;
    return std::move(*model);
  }
  static std::unique_ptr<Model> load(int threads, std::int64_t step_tokens, bool fuse) {
    TracedModel model = traced();
    LoadOptions options;
    options.threads = threads;
    options.step_tokens = step_tokens;
    options.fuse = fuse;
    options.max_context = model.max_context;
    options.context = 128;
    auto loaded = Model::load_dummy(std::move(model.graph), std::move(options));
    EXPECT_TRUE(loaded.ok()) << loaded.error().message;
    return std::move(*loaded);
  }
};

TEST_P(Dummy, RunsAndDependsOnTheTokensAlone) {
  const std::unique_ptr<Model> model = load(1, 64, true);
  const std::unique_ptr<Model> other = load(3, 7, false);
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < 90; ++i)
    ids.push_back((i * 37 + 11) % static_cast<std::int32_t>(model->vocab()));
  const auto session = std::move(*Session::create(*model));
  ASSERT_TRUE(session->append(ids).ok());
  const auto again = std::move(*Session::create(*other));
  ASSERT_TRUE(again->append(ids).ok());
  const std::vector<float> logits(session->logits().begin(), session->logits().end());
  EXPECT_EQ(logits, std::vector<float>(again->logits().begin(), again->logits().end()));
  double square = 0;
  for (const float x : logits) {
    if (std::isinf(x)) continue;  // an image's placeholder
    ASSERT_TRUE(std::isfinite(x));
    square += static_cast<double>(x) * x;
  }
  const double size = std::sqrt(square / static_cast<double>(logits.size()));
  EXPECT_GT(size, 0.05);
  EXPECT_LT(size, 100);
}

TEST_P(Dummy, ARowIsTheSameInAnyCompany) {
  const Graph graph = traced().graph;
  const auto sources = make_dummy_weights(graph);
  ASSERT_TRUE(sources.ok());
  ASSERT_EQ(sources->size(), graph.weights().size());
  std::map<std::vector<float>, std::string> seen;
  for (std::size_t w = 0; w < sources->size(); ++w) {
    const WeightSource& source = *(*sources)[w];
    EXPECT_EQ(source.shape(), graph.weights()[w].shape);
    const std::int64_t columns = source.elements() / source.rows();
    std::vector<float> all(static_cast<std::size_t>(source.elements()));
    ASSERT_TRUE(source.read_rows(0, source.rows(), all.data()).ok());
    const std::int64_t row = source.rows() / 2;
    std::vector<float> one(static_cast<std::size_t>(columns));
    ASSERT_TRUE(source.read_rows(row, 1, one.data()).ok());
    EXPECT_TRUE(std::equal(one.begin(), one.end(), all.begin() + row * columns)) << source.name();
    for (const float x : all) ASSERT_EQ(x, bf16_to_f32(f32_to_bf16(x))) << source.name();
    if (all.size() < 16) continue;
    const auto [twin, fresh] = seen.emplace(all, source.name());
    EXPECT_TRUE(fresh) << source.name() << " equals " << twin->second;
  }
}

INSTANTIATE_TEST_SUITE_P(Configs, Dummy, ::testing::ValuesIn(config_folders()), [](const auto& one) {
  return std::filesystem::path(one.param).filename().string();
});

TEST(DummyWeights, MatricesKeepTheSizeOfWhatTheyMultiply) {
  Graph graph("by hand");
  const auto embed = graph.weight({.name = "embed", .shape = {64, 512}, .also = {}});
  const auto x = graph.add("embedding", {{graph.tokens()}, {*embed}}, {});
  const auto matrix = graph.weight({.name = "w", .shape = {512, 512}, .also = {}});
  ASSERT_TRUE(graph.add("linear", {{(*x)[0]}, {*matrix}}, {}).ok());
  const auto sources = make_dummy_weights(graph);
  ASSERT_TRUE(sources.ok());
  for (const auto& [index, expected] : {std::pair{0, 1.0}, std::pair{1, 1.0 / 512}}) {
    const WeightSource& source = *(*sources)[static_cast<std::size_t>(index)];
    std::vector<float> all(static_cast<std::size_t>(source.elements()));
    ASSERT_TRUE(source.read_rows(0, source.rows(), all.data()).ok());
    double sum = 0;
    double square = 0;
    for (const double v : all) {
      sum += v;
      square += v * v;
    }
    const auto n = static_cast<double>(all.size());
    EXPECT_NEAR(square / n / expected, 1, 0.05);
    EXPECT_NEAR(sum / n / std::sqrt(expected), 0, 0.02);
  }
}

TEST(DummyWeights, PackedFormatsLieOnTheirGrid) {
  const auto model = trace_model(bundled_goldens() / "kimi_k31_b", models_folder());
  ASSERT_TRUE(model.ok());
  ASSERT_EQ(model->graph.quantization().format, WeightFormat::kMXFP4);
  const auto sources = make_dummy_weights(model->graph);
  ASSERT_TRUE(sources.ok());
  int experts = 0;
  for (const auto& source : *sources) {
    std::vector<float> all(static_cast<std::size_t>(source->elements()));
    ASSERT_TRUE(source->read_rows(0, source->rows(), all.data()).ok());
    std::set<float> values(all.begin(), all.end());
    if (source->name().find(".experts.") == std::string::npos) continue;
    ++experts;
    const float scale = *values.rbegin() / 6;  // E2M1's largest number
    int exponent = 0;
    EXPECT_EQ(std::frexp(scale, &exponent), 0.5F) << source->name();
    std::set<float> codes;
    for (const float magnitude : {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F}) {
      codes.insert(magnitude * scale);
      codes.insert(-magnitude * scale);
    }
    EXPECT_EQ(values, codes) << source->name();
  }
  EXPECT_GT(experts, 0);
}

}  // namespace
}  // namespace firstlight::testing
