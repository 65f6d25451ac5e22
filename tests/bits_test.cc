// One arithmetic: the same bits whatever the chunking, threads, batch, fusions and values asked for.
#include "golden_cases.h"
#include "golden_support.h"

namespace firstlight::testing {
namespace {

const std::vector<std::string> kKinds = {"hidden", "final", "logits",     "experts",  "topk",
                                         "state",  "conv",  "mixed_attn", "mixed_mlp"};

void expect_same_bits(const Tensors& a, const Tensors& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (const auto& [name, tensor] : a) {
    const auto other = b.find(name);
    ASSERT_NE(other, b.end()) << what << ": no " << name;
    EXPECT_TRUE(tensor == other->second) << what << ": " << name << " differs";
  }
}

void compare_case(const std::filesystem::path& folder, bool f32, const std::vector<std::int64_t>& chunks,
                  const firstlight::RunSettings& formats = {}) {
  const Tensors expected = read_tensors(folder / "expect.safetensors");
  RunSettings base;
  base.f32 = f32;
  base.formats = formats;
  base.kinds = kKinds;
  base.greedy = 4;
  const Tensors whole = run_case(folder, expected, base);
  const std::string name = folder.filename().string() + (f32 ? " f32" : " bf16");
  const auto variant = [&](const std::string& what, const RunSettings& settings) {
    expect_same_bits(whole, run_case(folder, expected, settings), name + ", " + what);
  };
  for (const std::int64_t chunk : chunks) {
    RunSettings s = base;
    s.chunk = chunk;
    s.threads = chunk % 2 == 0 ? 2 : 1;
    variant("chunks of " + std::to_string(chunk), s);
  }
  RunSettings s = base;
  s.threads = 2;
  variant("two threads", s);
  s.together = true;
  variant("together", s);
  s.chunk = 17;
  variant("together, chunks of 17", s);
  s = base;
  s.fuse = false;
  variant("fusions off", s);
  s = base;
  s.kinds = {"logits"};
  s.greedy = 0;
  for (const auto& [key, tensor] : run_case(folder, expected, s)) {
    EXPECT_TRUE(tensor == whole.at(key)) << name << ": " << key << " changed when nothing else was asked for";
  }
}

const std::vector<std::int64_t> kAllChunks = {1, 15, 16, 17, 63, 64, 65, 100};

class Bits : public ::testing::TestWithParam<Family> {};

TEST_P(Bits, BundledCases) {
  for (const std::string& name : GetParam().bundled) {
    for (const bool f32 : {true, false}) compare_case(bundled_goldens() / name, f32, {1, 17, 64});
  }
}

/// Weights in few bits, whose activations are quantised as well: another arithmetic, the same promise.
TEST_P(Bits, EveryFormat) {
  firstlight::RunSettings narrow{
      .weights = HeldAs::kInt8, .experts = HeldAs::kInt8, .wide_activations = false};
  for (const std::string& name : GetParam().bundled) {
    for (const HeldAs form : {HeldAs::kInt8, HeldAs::kInt4, HeldAs::kMxfp4}) {
      compare_case(bundled_goldens() / name, false, {1, 17}, {.weights = form, .experts = form});
    }
    compare_case(bundled_goldens() / name, false, {1, 17}, narrow);
  }
}

class BitsSlow : public ::testing::TestWithParam<Family> {};

TEST_P(BitsSlow, AllSharedCasesAndCuts) {
  if (!std::filesystem::is_directory(shared_goldens())) {
    GTEST_SKIP() << "the larger golden sets are not here (" << shared_goldens() << ")";
  }
  for (const std::string& name : GetParam().shared) {
    for (const bool f32 : {true, false}) compare_case(shared_goldens() / name, f32, kAllChunks);
  }
}

std::string family_name(const ::testing::TestParamInfo<Family>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Families, Bits, ::testing::ValuesIn(families()), family_name);
INSTANTIATE_TEST_SUITE_P(Families, BitsSlow, ::testing::ValuesIn(families()), family_name);

}  // namespace
}  // namespace firstlight::testing
