#include "checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include "checkpoint/folder_listing.h"
#include "checkpoint/shard_index.h"
#include "checkpoint/test_folder.h"

namespace firstlight {
namespace {

using testing::contains;
using testing::safetensors_text;
using testing::TestFolder;

/// A file of one-byte tensors with these names.
std::string shard(const std::vector<std::string>& names) {
  std::string header = "{";
  for (std::size_t i = 0; i < names.size(); ++i) {
    header += (i == 0 ? "\"" : ",\"") + names[i] + R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" +
              std::to_string(i) + "," + std::to_string(i + 1) + "]}";
  }
  return safetensors_text(header + "}", names.size());
}

constexpr char kOne[] = "model-00001-of-00002.safetensors";
constexpr char kTwo[] = "model-00002-of-00002.safetensors";

TEST(Checkpoint, SingleFile) {
  const TestFolder folder;
  folder.write("model.safetensors", shard({"b", "a"}));
  folder.write("adapter.safetensors", "not looked at");
  folder.write("pytorch_model.bin", "not looked at");
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ(
      checkpoint->notices(),
      std::vector<std::string>{"\"adapter.safetensors\" is not part of the checkpoint and is not read"});
  EXPECT_EQ(checkpoint->total_bytes(), 2);
  ASSERT_EQ(checkpoint->entries().size(), 2U);
  EXPECT_EQ(checkpoint->entries()[0].name, "a");
  EXPECT_EQ(checkpoint->file_of(checkpoint->entries()[0]), "model.safetensors");
  ASSERT_NE(checkpoint->find("b"), nullptr);
  EXPECT_EQ(checkpoint->find("b")->data[0], 0);
  EXPECT_EQ(checkpoint->find("c"), nullptr);
}

TEST(Checkpoint, ShardsWithAnIndex) {
  const TestFolder folder;
  folder.write(kOne, shard({"a", "c"}));
  folder.write("other.safetensors", shard({"b"}));
  folder.write(
      kIndexName,
      std::string(
          R"({"metadata":{"total_size":3,"x":[1,{"y":null}]},"weight_map":{"b":"other.safetensors",)") +
          R"("c":")" + kOne + R"(","a":")" + kOne + R"("}})");
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->entries().size(), 3U);
  EXPECT_EQ(checkpoint->file_of(checkpoint->entries()[1]), "other.safetensors");
  EXPECT_EQ(checkpoint->files().size(), 2U);
  EXPECT_TRUE(checkpoint->notices().empty());
}

TEST(Checkpoint, IndexAndShardsMustAgreeAndAllIsListed) {
  const TestFolder folder;
  folder.write(kOne, shard({"a", "extra", "moved"}));
  folder.write(kTwo, shard({"b", "a"}));
  folder.write("model.safetensors", shard({"z"}));
  folder.write("broken.safetensors", "{}");
  folder.write(kIndexName, std::string(R"({"weight_map":{"a":")") + kOne + R"(","b":")" + kTwo +
                               R"(","absent":")" + kOne + R"(","moved":")" + kTwo +
                               R"(","g":"gone.safetensors","h":"broken.safetensors"}})");
  const auto result = Checkpoint::open(folder.path());
  ASSERT_FALSE(result.ok());
  const std::string& message = result.error().message;
  for (const char* part :
       {"files that cannot be used (2): ", "/broken.safetensors: has 2 bytes",
        "/gone.safetensors: cannot be opened",
        "weight files that the index does not list (1): model.safetensors",
        "tensors that two files hold (1): \"a\"",
        "tensors listed in the index but not in their file (2): \"absent\"",
        "\"moved\" in \"model-00002-of-00002.safetensors\" (it is in model-00001-of-00002.safetensors)",
        "tensors that the index does not list (2): ", "\"extra\" in model-00001-of-00002.safetensors"}) {
    EXPECT_TRUE(contains(message, part)) << part << "\n" << message;
  }
  EXPECT_FALSE(contains(message, "\"g\"")) << "tensors of a missing file are not listed one by one";
}

TEST(Checkpoint, NumberedShardsWithoutAnIndexMustBeComplete) {
  const TestFolder folder;
  folder.write("model-1-of-000003.safetensors", shard({"a"}));
  folder.write("model-00003-of-000003.safetensors", shard({"b"}));
  EXPECT_ERROR(Checkpoint::open(folder.path()), "has 2 of 3 shards:\n  missing shards (1): 2");
  folder.write("model-00002-of-000003.safetensors", shard({"c"}));
  ASSERT_TRUE(Checkpoint::open(folder.path()).ok());
  folder.write("model-00002-of-000004.safetensors", shard({"d"}));
  EXPECT_ERROR(Checkpoint::open(folder.path()), "sets of 3 and of 4");
}

TEST(Checkpoint, OddShardNumbers) {
  const struct {
    std::vector<std::string> names;
    const char* error;
  } cases[] = {
      {{"model-0-of-1.safetensors"}, "not numbered 1 to 1"},
      {{"model-2-of-1.safetensors"}, "not numbered 1 to 1"},
      {{"model-1-of-2.safetensors", "model-01-of-2.safetensors"}, "not numbered 1 to 2"},
      {{"model-1-of-4294967295.safetensors"},
       "has 1 of 4294967295 shards:\n  missing shards (4294967294): 2; 3"},
      {{"model-4294967295-of-4294967295.safetensors"}, "20; and 4294967274 more"},
      {{"model.safetensors", "model-1-of-1.safetensors"},
       "has both \"model.safetensors\" and numbered shards"},
      {{"model-99999999999-of-99999999999.safetensors"}, "has no model.safetensors"},
      {{"model-1-of-1.safetensors.bak"}, "has no model.safetensors"},
  };
  for (const auto& c : cases) {
    const TestFolder folder;
    for (const auto& name : c.names) folder.write(name, shard({"a"}));
    EXPECT_ERROR(Checkpoint::open(folder.path()), c.error);
  }
}

TEST(Checkpoint, FoldersWithoutSafetensors) {
  const TestFolder folder;
  EXPECT_ERROR(Checkpoint::open(folder / "none"), "/none: cannot be opened");
  folder.write("file", "");
  EXPECT_ERROR(Checkpoint::open(folder / "file"),
               "/file: is not a folder; give the folder of the checkpoint");
  EXPECT_ERROR(Checkpoint::open(folder.path()), "no other weights either");
  for (const char* name : {"pytorch_model.bin", "a.pt", "a.pth", "a.gguf"}) {
    folder.write(name, "x");
    EXPECT_ERROR(Checkpoint::open(folder.path()), "convert the weights to safetensors");
    std::filesystem::remove(folder / name);
  }
  folder.write("consolidated.safetensors", shard({"a"}));
  EXPECT_ERROR(Checkpoint::open(folder.path()), "numbered shards of it, only \"consolidated.safetensors\"");
}

TEST(Checkpoint, OneBrokenFileIsNamedInASentence) {
  const TestFolder folder;
  folder.write("model.safetensors", shard({"a"}).substr(0, 50));
  const auto result = Checkpoint::open(folder.path());
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().message.find(folder.path() + "/model.safetensors: claims a header of"), 0U);
  EXPECT_FALSE(contains(result.error().message, "\n"));
  std::filesystem::remove(folder / "model.safetensors");
  std::filesystem::create_directory(folder / "model.safetensors");
  EXPECT_ERROR(Checkpoint::open(folder.path()), "is a folder, expected a file");
}

std::string index_error(std::string_view text) {
  const auto result = parse_shard_index(text, "i");
  return result.ok() ? "" : result.error().message;
}

TEST(ShardIndex, NamesStayInTheFolder) {
  for (const char* name : {"../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..", "",
                           ".x.safetensors", "x.bin", "a\\\\b.safetensors", "a\\u0000.safetensors"}) {
    const std::string error = index_error(std::string(R"({"weight_map":{"t":")") + name + "\"}}");
    EXPECT_TRUE(contains(error, "names that are not those of a safetensors file in this folder (1): "))
        << name;
    EXPECT_TRUE(contains(error, "for \"t\"")) << error;
  }
}

TEST(ShardIndex, MalformedText) {
  EXPECT_TRUE(contains(index_error("{"), "not valid JSON"));
  EXPECT_EQ(index_error("[]"), "i: is not a JSON object");
  EXPECT_EQ(index_error("7"), "i: is not a JSON object");
  EXPECT_EQ(index_error("{}"), "i: lacks \"weight_map\"");
  EXPECT_EQ(index_error(R"({"metadata":{}})"), "i: lacks \"weight_map\"");
  EXPECT_EQ(index_error(R"({"weight_map":{}})"), "i: lists no tensor");
  EXPECT_EQ(index_error(R"({"weight_map":[]})"), "i: \"weight_map\" is not an object");
  EXPECT_EQ(index_error(R"({"weight_map":null})"), "i: \"weight_map\" is not an object");
  EXPECT_EQ(index_error(R"({"weight_map":{"a":1}})"), "i: \"weight_map\": the file of \"a\" is not a string");
  EXPECT_EQ(index_error(R"({"weight_map":{"a":{}}})"),
            "i: \"weight_map\": the file of \"a\" is not a string");
  EXPECT_EQ(index_error(R"({"map":{}})"), "i: has the unknown field \"map\"");
  EXPECT_EQ(index_error(R"({"metadata":1,"metadata":1})"), "i: has \"metadata\" twice");
  EXPECT_EQ(index_error(R"({"weight_map":{"a":"x.safetensors"},"weight_map":{}})"),
            "i: has \"weight_map\" twice");
  EXPECT_TRUE(contains(index_error(R"({"weight_map":{"a":"x.safetensors","\u0061":"y.safetensors"}})"),
                       "tensors listed twice (1): \"a\""));
  EXPECT_EQ(index_error(R"({"metadata":)" + std::string(100000, '[')),
            "i: \"metadata\" is nested too deeply");
}

TEST(Checkpoint, OpensEverySharedSample) {
  const std::string shared = testing::shared_folder();
  if (shared.empty()) GTEST_SKIP() << "sample checkpoints of the folder FIRSTLIGHT_SHARED/goldens";
  int opened = 0;
  for (const auto& item : std::filesystem::directory_iterator(shared + "/goldens")) {
    if (!std::filesystem::exists(item.path() / "config.json")) continue;
    const auto checkpoint = Checkpoint::open(item.path().string());
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    EXPECT_TRUE(open_safetensors((item.path() / "expect.safetensors").string()).ok());
    ++opened;
  }
  EXPECT_GT(opened, 20);
}

}  // namespace
}  // namespace firstlight
