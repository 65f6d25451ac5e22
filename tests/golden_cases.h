// The golden cases by family: those that the repository carries, and all of them where the larger sets are.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace firstlight::testing {

struct Family {
  std::string name;
  std::vector<std::string> bundled;  // under tests/data/goldens
  std::vector<std::string> shared;   // under shared_goldens()
  double limit;                      // of max |x - reference| / max |reference| of any f32 value
};

inline void PrintTo(const Family& family, std::ostream* out) { *out << family.name; }

inline const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      {"kimi_linear", {"kimi_linear_b"}, {"kimi_linear_a", "kimi_linear_b"}, 1e-4},
      {"kimi_k3", {"kimi_k3_text_a"}, {"kimi_k3_text_a", "kimi_k3_text_b"}, 2e-4},
      {"kimi_k31", {"kimi_k31_b", "kimi_k31_c"}, {"kimi_k31_a", "kimi_k31_b", "kimi_k31_c"}, 2e-4},
      {"deepseek_v32",
       {"deepseek_v32_b", "deepseek_v32_fp8_f32scale"},
       {"deepseek_v32_a", "deepseek_v32_b", "deepseek_v32_fp8", "deepseek_v32_fp8_f32scale"},
       1e-4},
      {"glm_moe_dsa", {"glm_moe_dsa_shared"}, {"glm_moe_dsa_full", "glm_moe_dsa_shared"}, 1e-4},
      {"gpt_oss", {"gpt_oss"}, {"gpt_oss"}, 1e-4},
      {"gemma3", {"gemma3_text"}, {"gemma3_text"}, 1e-4},
      {"llama", {"llama3_scaled"}, {"llama3_scaled", "llama_tied"}, 1e-4},
      {"minimax_m2", {"minimax_m2"}, {"minimax_m2"}, 1e-4},
      {"mistral", {"mistral_window"}, {"mistral_window"}, 1e-4},
      {"mixtral", {"mixtral"}, {"mixtral"}, 1e-4},
      {"qwen3", {"qwen3_moe"}, {"qwen3_dense", "qwen3_moe"}, 1e-4},
      {"qwen3_next", {"qwen3_next"}, {"qwen3_next"}, 1e-4},
      {"qwen3_5", {"qwen3_5_moe"}, {"qwen3_5_dense", "qwen3_5_moe"}, 1e-4},
  };
  return all;
}

}  // namespace firstlight::testing
