// Whole models against reference implementations: f32 layer by layer, bf16 by divergence.
#include <cstdio>

#include "golden_support.h"

namespace firstlight::testing {
namespace {

const std::vector<std::string> kKimiLinear = {"kimi_linear_a", "kimi_linear_b"};
const std::vector<std::string> kKimiK3 = {"kimi_k3_text_a", "kimi_k3_text_b"};
const std::vector<std::string> kKimiK31 = {"kimi_k31_a", "kimi_k31_b", "kimi_k31_c"};

void compare_f32(const std::filesystem::path& folder, double limit) {
  const Tensors expected = read_tensors(folder / "expect.safetensors");
  RunSettings settings;
  settings.kinds.insert(settings.kinds.end(), {"mixed_attn", "mixed_mlp"});
  settings.greedy = 16;
  const Tensors actual = run_case(folder, expected, settings);
  std::map<std::string, double> worst;
  int excused = 0;
  int compared = 0;
  for (const auto& [name, want] : expected) {
    const std::string kind =
        name.substr(name.find('.') + 1, name.find('.', name.find('.') + 1) - name.find('.') - 1);
    if (kind == "ids" || kind.ends_with("_margin") || kind.ends_with("_gap") || kind == "logits_bf16")
      continue;
    const auto got = actual.find(name);
    ASSERT_NE(got, actual.end()) << folder << " has no " << name;
    ++compared;
    if (kind == "experts" || kind == "topk") {
      std::string gap = name;
      gap.insert(gap.find('.') + 1 + kind.size(), "_gap");
      const auto it = expected.find(gap);
      EXPECT_EQ(
          wrong_choices(got->second, want, it == expected.end() ? nullptr : &it->second, 2e-5F, excused), 0)
          << folder << " " << name;
    } else if (kind == "greedy") {
      EXPECT_EQ(got->second.data, want.data) << folder << " " << name;
    } else {
      const double difference = relative_difference(got->second, want);
      worst[kind] = std::max(worst[kind], difference);
      EXPECT_LE(difference, limit) << folder << " " << name;
    }
  }
  EXPECT_GT(compared, 20) << folder;
  std::printf("%s: ", folder.filename().c_str());
  for (const auto& [kind, difference] : worst) std::printf("%s %.1e  ", kind.c_str(), difference);
  std::printf("choices excused by a small gap: %d\n", excused);
}

/// Ratio of our divergence to that of the reference's own bf16 run, over the prompts of a family.
void compare_bf16(const std::vector<std::filesystem::path>& folders) {
  std::vector<double> ours;
  std::vector<double> theirs;
  for (const auto& folder : folders) {
    const Tensors expected = read_tensors(folder / "expect.safetensors");
    RunSettings settings;
    settings.f32 = false;
    settings.kinds = {"logits"};
    const Tensors actual = run_case(folder, expected, settings);
    for (const auto& [name, bf16] : expected) {
      if (!name.ends_with(".logits_bf16")) continue;
      const std::string prompt = name.substr(0, name.find('.'));
      const auto got = actual.find(prompt + ".logits");
      ASSERT_NE(got, actual.end());
      const Tensor& f32 = expected.at(prompt + ".logits");
      ours.push_back(divergence(f32, got->second, bf16.shape[0]));
      theirs.push_back(divergence(f32, bf16, bf16.shape[0]));
    }
  }
  ASSERT_FALSE(ours.empty());
  const auto mean = [](const std::vector<double>& v) {
    double sum = 0;
    for (const double x : v) sum += x;
    return sum / static_cast<double>(v.size());
  };
  const auto median = [](std::vector<double> v) {
    std::ranges::sort(v);
    return (v[(v.size() - 1) / 2] + v[v.size() / 2]) / 2;
  };
  std::printf("%zu prompts, KL ours / reference bf16: median %.3g / %.3g, mean %.3g / %.3g\n", ours.size(),
              median(ours), median(theirs), mean(ours), mean(theirs));
  EXPECT_LE(median(ours), 2 * median(theirs));
  EXPECT_LE(mean(ours), 4 * mean(theirs));
}

TEST(Golden, BundledCasesInF32) {
  compare_f32(bundled_goldens() / "kimi_linear_b", 1e-4);
  compare_f32(bundled_goldens() / "kimi_k3_text_a", 2e-4);
  compare_f32(bundled_goldens() / "kimi_k31_b", 2e-4);
  compare_f32(bundled_goldens() / "kimi_k31_c", 2e-4);
}

class SharedGolden : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::is_directory(shared_goldens())) {
      GTEST_SKIP() << "the larger golden sets are not here (" << shared_goldens() << ")";
    }
  }
  static std::vector<std::filesystem::path> folders(const std::vector<std::string>& names) {
    std::vector<std::filesystem::path> out;
    for (const std::string& name : names) out.push_back(shared_goldens() / name);
    return out;
  }
};

TEST_F(SharedGolden, KimiLinearInF32) {
  for (const auto& folder : folders(kKimiLinear)) compare_f32(folder, 1e-4);
}
TEST_F(SharedGolden, KimiK3InF32) {
  for (const auto& folder : folders(kKimiK3)) compare_f32(folder, 2e-4);
}
TEST_F(SharedGolden, KimiK31InF32) {
  for (const auto& folder : folders(kKimiK31)) compare_f32(folder, 2e-4);
}
TEST_F(SharedGolden, Bf16DivergesNoMoreThanTheReference) {
  compare_bf16(folders(kKimiLinear));
  compare_bf16(folders(kKimiK3));
  compare_bf16(folders(kKimiK31));
}

TEST(Golden, Bf16DivergesNoMoreThanTheReference) {
  compare_bf16({bundled_goldens() / "kimi_linear_b"});
  compare_bf16({bundled_goldens() / "kimi_k3_text_a"});
  compare_bf16({bundled_goldens() / "kimi_k31_c"});
}

}  // namespace
}  // namespace firstlight::testing
