#include "checkpoint/name_pattern.h"

#include <gtest/gtest.h>

#include <random>
#include <regex>

#include "checkpoint/test_folder.h"

namespace firstlight {
namespace {

std::string covering(const std::vector<std::string>& entries, std::string_view tensor) {
  const auto list = ModuleList::create(entries);
  EXPECT_TRUE(list.ok()) << list.error().message;
  const std::string* entry = list.ok() ? list->covering(tensor) : nullptr;
  return entry == nullptr ? "" : *entry;
}

TEST(ModuleList, EntriesOfPublishedConfigs) {
  // Kimi-K2.5
  const std::vector<std::string> k2 = {"lm_head", "re:.*self_attn.*", "re:.*shared_experts.*",
                                       "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"};
  EXPECT_EQ(covering(k2, "lm_head.weight"), "lm_head");
  EXPECT_EQ(covering(k2, "language_model.lm_head.weight"), "lm_head");
  EXPECT_EQ(covering(k2, "model.layers.0.mlp.gate_proj.weight"), k2[3]);
  EXPECT_EQ(covering(k2, "model.layers.1.self_attn.q_a_proj.weight"), k2[1]);
  EXPECT_EQ(covering(k2, "model.layers.1.mlp.shared_experts.down_proj.weight"), k2[2]);
  EXPECT_EQ(covering(k2, "model.layers.1.mlp.experts.7.gate_proj.weight"), "");
  // gpt-oss, MiniMax, Qwen, NVIDIA
  EXPECT_EQ(covering({"model.layers.*.self_attn"}, "model.layers.12.self_attn.q_proj.weight"),
            "model.layers.*.self_attn");
  EXPECT_EQ(covering({"model.layers.*.mlp.router"}, "model.layers.12.mlp.experts.gate_up_proj"), "");
  EXPECT_EQ(covering({"gate"}, "model.layers.1.block_sparse_moe.gate.weight"), "gate");
  EXPECT_EQ(covering({"gate"}, "model.layers.1.block_sparse_moe.experts.1.gate_proj.weight"), "");
  EXPECT_EQ(covering({"model.layers.1.mlp.gate"}, "model.layers.1.mlp.gate_proj.weight"), "");
  EXPECT_EQ(covering({"model.layers.1"}, "model.layers.1.mlp.gate_proj.weight"), "model.layers.1");
  EXPECT_EQ(covering({"model.layers.1"}, "model.layers.10.mlp.gate_proj.weight"), "");
  EXPECT_EQ(covering({"language_model.model.layers.0*"}, "language_model.model.layers.0.mlp.up_proj.weight"),
            "language_model.model.layers.0*");
  EXPECT_EQ(covering({"re:visual.*"}, "model.visual.proj.weight"), "");  // from the first letter
  EXPECT_EQ(covering({}, "a"), "");
  EXPECT_EQ(covering({""}, "a.b"), "");
}

TEST(ModuleList, WhatIsNotUnderstoodIsNamed) {
  for (const char* bad : {"re:a**", "re:a*?", "re:(a", "re:a)", "re:[a", "re:\\b", "re:a{2}", "re:(?!x)a",
                          "re:*", "re:((ab)*c)*", "re:a\\"}) {
    EXPECT_ERROR(ModuleList::create({"x", bad}), "quantization_config's list of modules has ");
  }
  EXPECT_ERROR(ModuleList::create({"re:" + std::string(2000, 'a')}), "is longer than any real one");
  EXPECT_ERROR(ModuleList::create({"*" + std::string(2000, 'a')}), "is longer than any real one");
  EXPECT_ERROR(ModuleList::create({"re:" + std::string(900, '(')}), "is not understood");
  EXPECT_ERROR(ModuleList::create(std::vector<std::string>(5000, "a*")), "has 5000 patterns, at most 4096");
  EXPECT_EQ(covering({"re:.*"}, std::string(600, 'a')), "");  // longer than any name
}

TEST(NamePattern, RandomPatternsAgreeWithTheStandardLibrary) {
  std::mt19937 random(2);
  const std::string alphabet = "ab.";
  for (int round = 0; round < 3000; ++round) {
    std::string pattern;
    for (std::size_t i = 1 + random() % 5; i > 0; --i) {
      const char* const pieces[] = {"a", "b", "\\.", ".", "(a|bb)", "[ab]", "[^a]", "(?:ab|a|)"};
      pattern += pieces[random() % 8];
      const char* const signs[] = {"", "", "*", "+", "?"};
      pattern += signs[random() % 5];
    }
    if (random() % 4 == 0) pattern += "$";
    std::string name;
    for (std::size_t i = random() % 8; i > 0; --i) name += alphabet[random() % 3];
    const auto compiled = NamePattern::regex(pattern);
    ASSERT_TRUE(compiled.ok()) << pattern << ": " << compiled.error().message;
    const std::regex reference(pattern);
    const auto ends = compiled->ends(name);
    EXPECT_EQ(ends.any(), std::regex_search(name, reference, std::regex_constants::match_continuous))
        << pattern << " " << name;
    EXPECT_EQ(ends[name.size()], std::regex_match(name, reference)) << pattern << " " << name;
  }
}

TEST(NamePattern, TimeDoesNotExplode) {
  const std::string name(500, 'a');
  for (const char* pattern : {"(a|aa)*$b", "(a*)(a*)(a*)(a*)(a*)b", "(a|a|a|a)*b", ".*.*.*.*.*.*.*.*b"}) {
    const auto compiled = NamePattern::regex(pattern);
    ASSERT_TRUE(compiled.ok()) << pattern;
    EXPECT_TRUE(compiled->ends(name).none());
  }
}

}  // namespace
}  // namespace firstlight
