#include "checkpoint/config.h"

#include <gtest/gtest.h>

#include "checkpoint/generation_config.h"
#include "checkpoint/test_folder.h"

namespace firstlight {
namespace {

using testing::contains;
using testing::TestFolder;

TEST(Config, ReadsAnObjectInOrder) {
  const TestFolder folder;
  folder.write("config.json", R"({"b": 1, "a": {"c": [1.5, "x"]}})");
  const auto config = read_config(folder / "config.json");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->dump(), R"({"b":1,"a":{"c":[1.5,"x"]}})");
}

TEST(Config, BadFilesAreNamed) {
  const TestFolder folder;
  EXPECT_ERROR(read_config(folder / "none"), "/none: cannot be opened");
  EXPECT_ERROR(parse_config("[1]", "c.json"), "c.json: is not a JSON object");
  EXPECT_ERROR(parse_config(R"({"a":{"b":1,"b":2}})", "c.json"), "c.json: key \"a.b\" appears twice");
  EXPECT_ERROR(parse_config("{\"rope_theta\": Infinity}", "c.json"), "line 1, column 16: NaN and Infinity");
  EXPECT_ERROR(parse_config("{\"a\": \"\xff\"}", "c.json"), "UTF-8");
  EXPECT_ERROR(parse_config(R"({"a":)" + std::string(70, '['), "c.json"), "deeper than 64 levels");
  std::ofstream(folder / "large.json") << "{}";
  std::filesystem::resize_file(folder / "large.json", (64 << 20) + 1);  // sparse
  EXPECT_ERROR(read_config(folder / "large.json"), "at most 67108864 are accepted");
}

TEST(Config, ReadsEverySharedSample) {
  const std::string shared = testing::shared_folder();
  if (shared.empty()) GTEST_SKIP() << "config files of the folder FIRSTLIGHT_SHARED/data/configs";
  int read = 0;
  for (const auto& item : std::filesystem::recursive_directory_iterator(shared + "/data/configs")) {
    if (item.path().extension() != ".json") continue;
    const auto config = read_config(item.path().string());
    EXPECT_TRUE(config.ok()) << config.error().message;
    ++read;
  }
  EXPECT_GT(read, 20);
}

TEST(GenerationConfig, MissingFileIsEmpty) {
  const TestFolder folder;
  const auto d = read_generation_config(folder / "generation_config.json");
  ASSERT_TRUE(d.ok()) << d.error().message;
  EXPECT_FALSE(d->temperature || d->top_p || d->top_k || d->do_sample || d->max_new_tokens);
  EXPECT_TRUE(d->eos_token_ids.empty() && d->unknown_keys.empty());
}

TEST(GenerationConfig, ReadsFields) {
  const TestFolder folder;
  folder.write("generation_config.json",
               R"({"bos_token_id": 248044, "do_sample": true, "eos_token_id": [248046, 248044, 248046],
                   "pad_token_id": 3, "temperature": 1, "top_k": 20, "top_p": 0.95, "min_p": 0,
                   "repetition_penalty": 1.05, "presence_penalty": -1.5, "frequency_penalty": 0.0,
                   "max_new_tokens": 2048, "max_length": null, "transformers_version": "5.2.0",
                   "penalty_alpha": 0.6, "num_beams": 1})");
  const auto d = read_generation_config(folder / "generation_config.json");
  ASSERT_TRUE(d.ok()) << d.error().message;
  EXPECT_EQ(d->do_sample, true);
  EXPECT_EQ(d->temperature, 1.0);
  EXPECT_EQ(d->top_k, 20);
  EXPECT_EQ(d->top_p, 0.95);
  EXPECT_EQ(d->min_p, 0.0);
  EXPECT_EQ(d->repetition_penalty, 1.05);
  EXPECT_EQ(d->presence_penalty, -1.5);
  EXPECT_EQ(d->frequency_penalty, 0.0);
  EXPECT_EQ(d->max_new_tokens, 2048);
  EXPECT_EQ(d->max_length, std::nullopt);
  EXPECT_EQ(d->bos_token_id, 248044);
  EXPECT_EQ(d->pad_token_id, 3);
  EXPECT_EQ(d->eos_token_ids, (std::vector<std::int32_t>{248046, 248044}));
  EXPECT_EQ(d->unknown_keys, (std::vector<std::string>{"penalty_alpha", "num_beams"}));
  EXPECT_EQ(parse_generation_config(R"({"eos_token_id": 7, "top_k": -1})", "g")->top_k, 0);
  EXPECT_EQ(parse_generation_config(R"({"eos_token_id": 7})", "g")->eos_token_ids,
            std::vector<std::int32_t>{7});
}

TEST(GenerationConfig, WrongFieldsAreAllNamed) {
  for (const char* field : {R"("do_sample": 1)",
                            R"("temperature": -0.1)",
                            R"("temperature": "1")",
                            R"("temperature": true)",
                            R"("top_p": 1.01)",
                            R"("top_p": -0.1)",
                            R"("top_k": -2)",
                            R"("top_k": 1.5)",
                            R"("top_k": 18446744073709551615)",
                            R"("min_p": 2)",
                            R"("repetition_penalty": 0)",
                            R"("repetition_penalty": -1)",
                            R"("presence_penalty": 3)",
                            R"("frequency_penalty": -3)",
                            R"("max_new_tokens": 0)",
                            R"("max_new_tokens": 1e3)",
                            R"("max_length": 0)",
                            R"("bos_token_id": -1)",
                            R"("pad_token_id": 2147483648)",
                            R"("eos_token_id": [])",
                            R"("eos_token_id": [1, -1])",
                            R"("eos_token_id": "2")",
                            R"("eos_token_id": [[1]])",
                            R"("eos_token_id": {"a": 1})",
                            R"("eos_token_id": 4294967297)",
                            R"("eos_token_id": [null])"}) {
    const std::string text(field);
    const auto d = parse_generation_config("{" + text + "}", "g.json");
    EXPECT_ERROR(
        d, "g.json: cannot be used:\n  wrong fields (1): " + text.substr(0, text.find(':')) + " is not ");
  }
  EXPECT_ERROR(
      parse_generation_config(R"({"top_p": 7, "min_p": "a"})", "g"),
      "wrong fields (2): \"top_p\" is not a number from 0 to 1; \"min_p\" is not a number from 0 to 1");
  EXPECT_ERROR(parse_generation_config("[]", "g.json"), "g.json: is not a JSON object");
}

}  // namespace
}  // namespace firstlight
