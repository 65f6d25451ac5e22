// Packed weights kept on the disk: the bits of a run with them are those of a run without, whatever has
// happened to the file or to the checkpoint in between.
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "checkpoint/packed_file.h"
#include "checkpoint/test_folder.h"
#include "engine/session.h"
#include "golden_support.h"

namespace firstlight::testing {
namespace {

using When = KeepPacked::When;

struct Form {
  const char* name;
  HeldAs weights = HeldAs::kStored;
  HeldAs experts = HeldAs::kStored;
  bool f32 = false;
  bool expanded = false;
};

struct Outcome {
  std::vector<float> logits;  // after a prompt
  std::vector<std::string> notices;
};

Outcome run(const std::string& folder, const Form& form, const KeepPacked& keep) {
  auto traced = trace_model(folder, models_folder());
  check(traced.ok(), "traced");
  const auto checkpoint = Checkpoint::open(folder);
  check(checkpoint.ok(), "opened");
  LoadOptions load;
  load.f32 = form.f32;
  load.threads = 2;
  load.max_context = traced->max_context;
  load.context = 64;
  load.settings.weights = form.weights;
  load.settings.experts = form.experts;
  load.settings.expanded_prefill = form.expanded;
  load.keep_packed = keep;
  const auto model = Model::load(std::move(traced->graph), *checkpoint, std::move(load));
  check(model.ok(), "loaded");
  const auto session = std::move(*Session::create(**model));
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < 40; ++i) ids.push_back(i * 7 % 90);
  check(session->append(ids).ok(), "the prompt is run");
  return {{session->logits().begin(), session->logits().end()}, (*model)->notices()};
}

class PackedCacheTest : public ::testing::Test {
 protected:
  PackedCacheTest() { copy("kimi_linear_b"); }
  void copy(const std::string& golden) {
    for (const char* name : {"config.json", "model.safetensors"}) {
      std::filesystem::copy_file(bundled_goldens() / golden / name, checkpoint_ / name,
                                 std::filesystem::copy_options::overwrite_existing);
    }
  }
  [[nodiscard]] Outcome with(const Form& form = kInt8) const {
    return run(checkpoint_.path(), form, {When::kAlways, kept_.path()});
  }
  [[nodiscard]] std::vector<float> without(const Form& form = kInt8) const {
    return run(checkpoint_.path(), form, {}).logits;
  }
  /// The files that are kept.
  [[nodiscard]] std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(kept_.path())) names.push_back(entry.path());
    return names;
  }
  /// The file was not used for the reason given, and written again; the next start uses it.
  void expect_rebuilt(const std::string& why) const {
    const Outcome now = with();
    EXPECT_EQ(now.logits, without());
    ASSERT_EQ(now.notices.size(), 2U) << why;
    EXPECT_TRUE(contains(now.notices[0], files().at(0))) << now.notices[0];
    EXPECT_TRUE(contains(now.notices[0], why)) << now.notices[0];
    EXPECT_TRUE(contains(now.notices[1], "for the next start")) << now.notices[1];
    const Outcome next = with();
    EXPECT_EQ(next.logits, now.logits);
    EXPECT_TRUE(next.notices.empty()) << next.notices[0];
  }

  static constexpr Form kInt8{"int8", HeldAs::kInt8, HeldAs::kInt8};
  TestFolder checkpoint_;
  TestFolder kept_;
};

TEST_F(PackedCacheTest, NothingIsWrittenThroughALink) {
  const std::vector<float> expected = with().logits;
  const std::string file = files().at(0);
  const std::filesystem::path other = checkpoint_ / "other";
  std::filesystem::rename(file, other);
  std::filesystem::create_symlink(other, file);
  EXPECT_TRUE(with().notices.empty());  // reading is harmless
  std::ofstream(other) << "somebody's letter";
  const Outcome now = with();
  EXPECT_EQ(now.logits, expected);
  ASSERT_EQ(now.notices.size(), 2U);
  EXPECT_TRUE(contains(now.notices[1], "is a link")) << now.notices[1];
  EXPECT_EQ(std::filesystem::file_size(other), 17U);
  EXPECT_TRUE(std::filesystem::is_symlink(file));
}

TEST_F(PackedCacheTest, TheSecondStartHasTheSameBits) {
  for (const char* golden : {"kimi_linear_b", "gpt_oss", "deepseek_v32_fp8_f32scale", "kimi_k31_b"}) {
    copy(golden);
    for (const Form& form : {Form{"stored"}, kInt8, Form{"int4", HeldAs::kInt4, HeldAs::kInt4},
                             Form{"mxfp4", HeldAs::kMxfp4, HeldAs::kMxfp4},
                             Form{"int8, mxfp4 experts", HeldAs::kInt8, HeldAs::kMxfp4},
                             Form{.name = "f32", .f32 = true}, Form{.name = "expanded", .expanded = true}}) {
      if (form.expanded && golden != std::string("kimi_linear_b"))
        continue;  // the others attend few positions
      const std::vector<float> expected = without(form);
      const auto before = files();
      const Outcome first = with(form);
      const Outcome second = with(form);
      EXPECT_TRUE(first.logits == expected) << golden << ", " << form.name;
      EXPECT_TRUE(second.logits == expected) << golden << ", " << form.name;
      ASSERT_EQ(first.notices.size(), golden == std::string("kimi_linear_b") ? 1U : 2U) << form.name;
      EXPECT_TRUE(contains(first.notices.back(), "for the next start")) << first.notices.back();
      EXPECT_TRUE(second.notices.empty()) << second.notices.front();
      EXPECT_GE(files().size(), before.size());
    }
    EXPECT_EQ(files().size(), 7U) << "a file for every form";
  }
}

TEST_F(PackedCacheTest, TheSecondStartTakesTheBytesOfTheFile) {
  const Outcome first = with();
  // The same matrices with other bytes, under good checksums: a run that packed would not notice.
  const std::string path = files().at(0);
  const Tensors tensors = read_tensors(path);
  std::vector<std::vector<std::byte>> data;
  std::vector<PackedBytes> entries;
  for (const auto& [name, tensor] : tensors) {
    if (name == "checksums") continue;
    data.emplace_back(tensor.data.size());
    entries.push_back({name, data.back().data(), static_cast<std::int64_t>(data.back().size())});
  }
  ThreadPool pool(1);
  const std::string key = PackedFile::open(path)->key();
  ASSERT_TRUE(write_packed_file(path, key, entries, pool, {}).ok());
  const Outcome second = with();
  EXPECT_TRUE(second.notices.empty());
  EXPECT_NE(second.logits, first.logits);
}

TEST_F(PackedCacheTest, ADeletedFileIsWrittenAgain) {
  const Outcome first = with();
  std::filesystem::remove(files().at(0));
  const Outcome second = with();
  EXPECT_EQ(second.logits, first.logits);
  EXPECT_EQ(second.notices.size(), 1U);
  EXPECT_EQ(files().size(), 1U);
}

TEST_F(PackedCacheTest, AnotherCheckpointIsNoticed) {
  const Outcome before = with();
  const auto file = std::filesystem::path(checkpoint_ / "model.safetensors");
  // Another value in the last matrix: same size, same header.
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary)
      .seekp(-200, std::ios::end)
      .write("\x12\x3c", 2);
  expect_rebuilt("file model.safetensors");
  // The same file, touched.
  std::filesystem::last_write_time(file, std::filesystem::last_write_time(file) - std::chrono::seconds(3));
  expect_rebuilt("file model.safetensors");
}

TEST_F(PackedCacheTest, DamageIsNoticedWhereverItIs) {
  static_cast<void>(with());
  const std::string path = files().at(0);
  const auto size = static_cast<std::int64_t>(std::filesystem::file_size(path));
  for (const std::int64_t at :
       {std::int64_t{3}, std::int64_t{100}, size / 3, size / 2, size - 200, size - 1}) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const int byte = file.get();
    file.seekp(at).put(static_cast<char>(byte ^ 4));
    file.close();
    expect_rebuilt(path);
  }
  std::filesystem::resize_file(path, static_cast<std::uintmax_t>(size - 64));
  expect_rebuilt("truncated");
  std::filesystem::resize_file(path, 0);
  expect_rebuilt("0 bytes");
  std::ofstream(path) << "something else";
  expect_rebuilt(path);
}

TEST_F(PackedCacheTest, WhatIsMissingOrTooMuchIsPackedAgain) {
  static_cast<void>(with());
  const std::string path = files().at(0);
  const std::string key = PackedFile::open(path)->key();
  const std::vector<std::byte> zeros(64);
  const PackedBytes other{"another matrix", zeros.data(), 64};
  ThreadPool pool(1);
  ASSERT_TRUE(write_packed_file(path, key, {&other, 1}, pool, {}).ok());
  expect_rebuilt("0 bytes of");
}

TEST_F(PackedCacheTest, AFolderThatCannotBeWrittenCostsALine) {
  const std::vector<float> expected = without();
  const Outcome absent = run(checkpoint_.path(), kInt8, {When::kAlways, kept_ / "absent"});
  EXPECT_EQ(absent.logits, expected);
  ASSERT_EQ(absent.notices.size(), 1U);
  EXPECT_TRUE(contains(absent.notices[0], "not kept")) << absent.notices[0];
  EXPECT_TRUE(contains(absent.notices[0], "absent")) << absent.notices[0];

  static_cast<void>(with());
  const std::string path = files().at(0);
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  const Outcome taken = with();
  EXPECT_EQ(taken.logits, expected);
  ASSERT_EQ(taken.notices.size(), 2U);
  EXPECT_TRUE(contains(taken.notices[0], "is a folder")) << taken.notices[0];
}

TEST_F(PackedCacheTest, SmallModelsLeaveNothingBesideTheCheckpoint) {
  const Outcome run_beside = run(checkpoint_.path(), kInt8, {When::kIfItPays, ""});
  EXPECT_TRUE(run_beside.notices.empty());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(checkpoint_.path()), {}), 2);
  // What is there is used.
  const Outcome always = run(checkpoint_.path(), kInt8, {When::kAlways, ""});
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(checkpoint_.path()), {}), 3);
  EXPECT_TRUE(std::filesystem::exists(checkpoint_ / "firstlight-int8.packed"));
  EXPECT_EQ(run(checkpoint_.path(), kInt8, {When::kIfItPays, ""}).logits, always.logits);
}

TEST_F(PackedCacheTest, TwoProcessesAtOnce) {
  const std::vector<float> expected = without();
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      bool same = true;
      for (int start = 0; start < 4; ++start) same = with().logits == expected && same;
      ::_exit(same ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  const Outcome after = with();
  EXPECT_EQ(after.logits, expected);
  EXPECT_TRUE(after.notices.empty());
  EXPECT_EQ(files().size(), 1U);
}

}  // namespace
}  // namespace firstlight::testing
