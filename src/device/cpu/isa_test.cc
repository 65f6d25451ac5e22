#include "device/cpu/isa.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "device/cpu/kernels.h"

namespace firstlight {
namespace {

TEST(Isa, GenericIsAlwaysThereAndDetectIsTheBest) {
  const std::vector<Isa> isas = available_isas();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(isas.front(), Isa::kGeneric);
  EXPECT_EQ(isas.back(), detect());
}

TEST(Isa, AgreesWithTheCompilersOwnDetection) {
  const std::vector<std::string> features = cpu_features();
  const auto has = [&](const char* name) {
    return std::find(features.begin(), features.end(), name) != features.end();
  };
  EXPECT_EQ(has("avx2"), __builtin_cpu_supports("avx2") != 0);
  EXPECT_EQ(has("fma"), __builtin_cpu_supports("fma") != 0);
  EXPECT_EQ(has("bmi2"), __builtin_cpu_supports("bmi2") != 0);
  EXPECT_EQ(has("avx512f"), __builtin_cpu_supports("avx512f") != 0);
  EXPECT_EQ(has("avx512bw"), __builtin_cpu_supports("avx512bw") != 0);
  EXPECT_EQ(has("avx512_bf16"), __builtin_cpu_supports("avx512bf16") != 0);
  EXPECT_EQ(has("avx512_vnni"), __builtin_cpu_supports("avx512vnni") != 0);
}

TEST(Isa, ChoosesWhatIsAskedFor) {
  EXPECT_EQ(*choose_isa(nullptr), detect());
  EXPECT_EQ(*choose_isa(""), detect());
  for (const Isa isa : available_isas()) EXPECT_EQ(*choose_isa(std::string(isa_name(isa)).c_str()), isa);
}

TEST(Isa, RefusesWithTheListOfWhatIsAvailable) {
  const Result<Isa> unknown = choose_isa("sse9");
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.error().message.find("unknown instruction set \"sse9\""), std::string::npos);
  EXPECT_NE(unknown.error().message.find("available: generic"), std::string::npos);
  for (const Isa isa : kAllIsas) {
    if (isa <= detect()) continue;
    const Result<Isa> refused = choose_isa(std::string(isa_name(isa)).c_str());
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("cannot run"), std::string::npos);
  }
}

TEST(Isa, KernelTablesWereCompiledForTheirIsa) {
  for (const Isa isa : available_isas()) {
    EXPECT_EQ(kernels(isa).isa, isa);
    EXPECT_EQ(kernels(isa).gemm.compiled_as(), isa_name(isa));
  }
}

}  // namespace
}  // namespace firstlight
