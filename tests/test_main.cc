// The main function of every GoogleTest program: holds FIRSTLIGHT_ISA to its word.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "device/cpu/isa.h"

namespace {

bool among(const auto& isas, std::string_view name) {
  return std::ranges::any_of(isas, [&](firstlight::Isa isa) { return firstlight::isa_name(isa) == name; });
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const char* forced = std::getenv("FIRSTLIGHT_ISA");
  if (forced == nullptr || GTEST_FLAG_GET(list_tests)) return RUN_ALL_TESTS();

  if (among(firstlight::kAllIsas, forced) && !among(firstlight::available_isas(), forced)) {
    // ctest knows this marker and reports the test as not run.
    std::printf("[  SKIPPED ] this machine cannot run the %s kernels\n", forced);
    return 0;
  }
  const auto chosen = firstlight::choose_isa();
  if (!chosen || firstlight::isa_name(*chosen) != forced) {
    std::printf("FIRSTLIGHT_ISA=%s was not obeyed: %s\n", forced,
                chosen ? std::string(firstlight::isa_name(*chosen)).c_str() : chosen.error().message.c_str());
    return 1;
  }
  return RUN_ALL_TESTS();
}
