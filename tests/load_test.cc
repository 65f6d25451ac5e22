// What loading costs: the packed weights, and not the file beside them.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "checkpoint/config.h"
#include "checkpoint/test_folder.h"
#include "golden_support.h"

namespace firstlight::testing {
namespace {

/// A checkpoint of some 150 MB: the bundled family, wider.
class WideCheckpoint {
 public:
  WideCheckpoint() {
    auto config = *read_config((bundled_goldens() / "kimi_linear_b/config.json").string());
    config["hidden_size"] = 1024;
    config["intermediate_size"] = 4096;
    config["moe_intermediate_size"] = 256;
    folder_.write("config.json", config.dump());
    auto traced = trace_model(folder_.path(), models_folder());
    check(traced.ok(), "the wide config is traced");
    std::vector<std::uint16_t> values(std::size_t{1} << 23);
    std::mt19937 random(1);
    for (auto& v : values) v = static_cast<std::uint16_t>(0x3c00 | (random() & 0x80ff));
    std::vector<NamedTensor> tensors;
    for (const WeightDecl& w : traced->graph.weights()) {
      tensors.push_back(
          {w.name, {DType::kBF16, w.shape, reinterpret_cast<const std::uint8_t*>(values.data())}});
      bytes_ += tensors.back().view.bytes();
    }
    check(write_safetensors(folder_ / "model.safetensors", tensors).ok(), "the wide checkpoint is written");
  }
  [[nodiscard]] const std::string& folder() const { return folder_.path(); }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  TestFolder folder_;
  std::int64_t bytes_ = 0;
};

struct Load {
  std::int64_t packed = 0;  // bytes of weights the model holds
  std::int64_t peak = 0;    // growth of the peak of resident memory
  std::int64_t calls = 0;   // of progress
  bool ordered = true;      // progress only grows, up to all
};

Load load_of(const std::string& folder, int threads) {
  auto traced = trace_model(folder, models_folder());
  check(traced.ok(), "traced");
  const auto checkpoint = Checkpoint::open(folder);
  check(checkpoint.ok(), "opened");
  Load load;
  std::int64_t last = 0;
  std::int64_t all = 1;
  LoadOptions options;
  options.threads = threads;
  options.max_context = traced->max_context;
  options.context = 64;
  options.step_tokens = 8;
  options.progress = [&](std::int64_t done, std::int64_t total) {
    load.ordered = load.ordered && done >= last && done <= total;
    last = done;
    all = total;
    ++load.calls;
  };
  rusage before{};
  rusage after{};
  ::getrusage(RUSAGE_SELF, &before);
  const auto model = Model::load(std::move(traced->graph), *checkpoint, std::move(options));
  ::getrusage(RUSAGE_SELF, &after);
  check(model.ok(), "loaded");
  load.packed = (*model)->weight_bytes();
  load.peak = (after.ru_maxrss - before.ru_maxrss) * 1024;
  load.ordered = load.ordered && last == all;
  return load;
}

TEST(Load, CostsThePackedWeightsOnly) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the memory of a load: sanitizers keep memory of their own";
#endif
  const WideCheckpoint checkpoint;
  for (const int threads : {1, 2}) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const Load load = load_of(checkpoint.folder(), threads);
      const ssize_t written = ::write(ends[1], &load, sizeof(load));
      ::_exit(written == sizeof(load) ? 0 : 1);
    }
    ::close(ends[1]);
    Load load;
    ASSERT_EQ(::read(ends[0], &load, sizeof(load)), static_cast<ssize_t>(sizeof(load)));
    ::close(ends[0]);
    ::waitpid(child, nullptr, 0);
    EXPECT_GT(load.packed, checkpoint.bytes() * 9 / 10);
    // Beyond the weights: a matrix's pages of the file while it is packed, buffers, huge pages' ends.
    EXPECT_LT(load.peak, load.packed + (std::int64_t{40} << 20)) << "of " << load.packed;
    EXPECT_GE(load.calls, 1);
    EXPECT_TRUE(load.ordered);
  }
}

}  // namespace
}  // namespace firstlight::testing
