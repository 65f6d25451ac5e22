// Whole models against reference implementations: f32 layer by layer, bf16 by divergence.
#include <cstdio>

#include "golden_cases.h"
#include "golden_support.h"

namespace firstlight::testing {
namespace {

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
  EXPECT_GT(compared, 10) << folder;
  std::printf("%s: ", folder.filename().c_str());
  for (const auto& [kind, difference] : worst) std::printf("%s %.1e  ", kind.c_str(), difference);
  std::printf("choices excused by a small gap: %d\n", excused);
}

/// Whether the first choice in which this row of ours differs from the reference, by layer, was one between
/// scores closer than bf16 resolves: what follows then compares two models, not two precisions.
bool chose_within_rounding(const Tensors& expected, const Tensors& actual, const std::string& prompt,
                           std::int64_t from_end) {
  constexpr float kResolution = 0x1p-9F;
  for (int layer = 0; layer < 64; ++layer) {
    for (const char* kind : {"topk", "experts"}) {
      const auto want = expected.find(prompt + "." + kind + "." + std::to_string(layer));
      const auto gap = expected.find(prompt + "." + kind + "_gap." + std::to_string(layer));
      if (want == expected.end() || gap == expected.end()) continue;
      const std::int64_t row = want->second.shape[0] - from_end;
      int excused = 0;
      const Tensor one = row_of(want->second, row);
      if (wrong_choices(row_of(actual.at(want->first), row), one, nullptr, 0, excused) == 0) continue;
      return gap->second.f32()[row] < kResolution;
    }
  }
  return false;
}

/// Divergences of single rows: of ours, f32 against bf16, and of the reference as tests/oracle/bf16_rows.py
/// found them.
void add_rows(const std::filesystem::path& folder, const std::filesystem::path& rows,
              std::vector<double>& ours, std::vector<double>& theirs) {
  const Tensors expected = read_tensors(rows);
  RunSettings settings;
  settings.kinds = {"logits"};
  const Tensors f32 = run_case(folder, expected, settings);
  settings.f32 = false;
  const Tensors bf16 = run_case(folder, expected, settings);
  for (const auto& [name, reference] : expected) {
    if (!name.ends_with(".divergence")) continue;
    const std::string logits = name.substr(0, name.find('.')) + ".logits";
    for (std::int64_t r = reference.shape[0]; r > 0; --r) {
      ours.push_back(divergence(f32.at(logits), bf16.at(logits), r));
      theirs.push_back(reference.f32()[reference.shape[0] - r]);
    }
  }
}

/// Ratio of our divergence to that of the reference's own bf16 run, over the prompts of a family, or over all
/// rows of many prompts where the repository has them.
void compare_bf16(const std::vector<std::filesystem::path>& folders) {
  std::vector<double> ours;
  std::vector<double> theirs;
  double rows = 0;
  double excused = 0;
  for (const auto& folder : folders) {
    const auto every_row = bundled_goldens() / folder.filename() / "rows_bf16.safetensors";
    if (std::filesystem::exists(every_row)) {
      add_rows(folder, every_row, ours, theirs);
      continue;
    }
    const Tensors expected = read_tensors(folder / "expect.safetensors");
    RunSettings settings;
    settings.f32 = false;
    settings.kinds = {"logits", "experts", "topk"};
    const Tensors actual = run_case(folder, expected, settings);
    for (const auto& [name, bf16] : expected) {
      if (!name.ends_with(".logits_bf16")) continue;
      const std::string prompt = name.substr(0, name.find('.'));
      const auto got = actual.find(prompt + ".logits");
      ASSERT_NE(got, actual.end());
      const Tensor& f32 = expected.at(prompt + ".logits");
      double our_sum = 0;
      double their_sum = 0;
      double kept = 0;
      for (std::int64_t r = bf16.shape[0]; r > 0; --r) {
        ++rows;
        if (chose_within_rounding(expected, actual, prompt, r)) continue;
        our_sum += divergence(f32, got->second, r);
        their_sum += divergence(f32, bf16, r);
        ++kept;
      }
      excused += static_cast<double>(bf16.shape[0]) - kept;
      if (kept == 0) continue;
      ours.push_back(our_sum / kept);
      theirs.push_back(their_sum / kept);
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
  std::printf(
      "%zu prompts or rows, KL ours / reference bf16: median %.3g / %.3g, mean %.3g / %.3g; %g of %g rows "
      "excused\n",
      ours.size(), median(ours), median(theirs), mean(ours), mean(theirs), excused, rows);
  EXPECT_LE(excused, rows / 4);
  EXPECT_LE(median(ours), 2 * median(theirs));
  EXPECT_LE(mean(ours), 4 * mean(theirs));
}

std::vector<std::filesystem::path> folders(const std::filesystem::path& root,
                                           const std::vector<std::string>& names) {
  std::vector<std::filesystem::path> out;
  for (const std::string& name : names) out.push_back(root / name);
  return out;
}

class Golden : public ::testing::TestWithParam<Family> {};

TEST_P(Golden, BundledInF32) {
  for (const auto& folder : folders(bundled_goldens(), GetParam().bundled)) {
    compare_f32(folder, GetParam().limit);
  }
}
TEST_P(Golden, BundledBf16DivergesNoMoreThanTheReference) {
  compare_bf16(folders(bundled_goldens(), GetParam().bundled));
}

class SharedGolden : public ::testing::TestWithParam<Family> {
 protected:
  void SetUp() override {
    if (!std::filesystem::is_directory(shared_goldens())) {
      GTEST_SKIP() << "the larger golden sets are not here (" << shared_goldens() << ")";
    }
  }
};

TEST_P(SharedGolden, InF32) {
  for (const auto& folder : folders(shared_goldens(), GetParam().shared)) {
    compare_f32(folder, GetParam().limit);
  }
}
TEST_P(SharedGolden, Bf16DivergesNoMoreThanTheReference) {
  compare_bf16(folders(shared_goldens(), GetParam().shared));
}

std::string family_name(const ::testing::TestParamInfo<Family>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Families, Golden, ::testing::ValuesIn(families()), family_name);
std::vector<Family> shared_families() {
  std::vector<Family> some;
  std::ranges::copy_if(families(), std::back_inserter(some),
                       [](const Family& f) { return !f.shared.empty(); });
  return some;
}
INSTANTIATE_TEST_SUITE_P(Families, SharedGolden, ::testing::ValuesIn(shared_families()), family_name);

}  // namespace
}  // namespace firstlight::testing
