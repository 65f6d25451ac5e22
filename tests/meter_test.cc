// Measuring: what is counted and how contexts are filled; never how long anything takes.
#include "engine/meter.h"

#include <cmath>
#include <numeric>

#include "engine/step_cost.h"
#include "golden_support.h"
#include "ops/registry.h"

namespace firstlight::testing {
namespace {

constexpr std::int64_t kStreams = 3;

class MeterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto model = dummy_model("kimi_k31_b", [](LoadOptions& load, const TracedModel& traced) {
      load.threads = 2;
      load.context = 400;
      load.step_tokens = 48;
      load.sequences = kStreams;
      load.keep = kept_names(traced.graph, {"experts"});
    });
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = std::move(*model);
    meter_ = std::move(*Meter::create(*model_, [this] { return speed_ += 2; }));
  }
  double speed_ = -1;  // 1, 3, 5, ... of the memory, when it is asked for
  std::unique_ptr<Model> model_;
  std::unique_ptr<Meter> meter_;
};

TEST_F(MeterTest, EveryRunIsTimedAndEveryNode) {
  ASSERT_TRUE(meter_->deepen(70, 70).ok());
  for (const auto& times : {meter_->prefill(100, 48, 4, true), meter_->decode(5, kStreams, 4, true)}) {
    ASSERT_TRUE(times.ok()) << times.error().message;
    ASSERT_EQ(times->runs.size(), 4U);
    for (const MeterTimes::Run& run : times->runs) {
      EXPECT_GT(run.seconds, 0);
      EXPECT_GT(run.cpu_seconds, 0);
    }
    // Asked before each run and after the last.
    for (std::size_t r = 1; r < 4; ++r)
      EXPECT_EQ(times->runs[r].read_speed, times->runs[r - 1].read_speed + 2);
    ASSERT_EQ(times->node_mean.size(), model_->graph().nodes().size());
    for (std::size_t n = 0; n < times->node_mean.size(); ++n) {
      EXPECT_GT(times->node_best[n], 0);
      EXPECT_LE(times->node_best[n], times->node_mean[n] * (1 + 1e-9));
    }
  }
  const auto untimed = meter_->decode(2, 1, 1, false);
  ASSERT_TRUE(untimed.ok());
  EXPECT_TRUE(untimed->node_best.empty());
  EXPECT_EQ(untimed->runs[0].read_speed, 22);  // (21 + 23) / 2: each of the others asked five times
}

TEST_F(MeterTest, DifferentExpertsOfAStepAreCounted) {
  for (const std::int64_t streams : {std::int64_t{1}, kStreams}) {
    const auto times = meter_->decode(6, streams, 1, false);
    ASSERT_TRUE(times.ok());
    for (std::size_t n = 0; n < times->distinct_experts.size(); ++n) {
      const Node& node = model_->graph().nodes()[n];
      if (node.contract->name != "moe_experts") {
        EXPECT_EQ(times->distinct_experts[n], 0);
        continue;
      }
      const auto each = static_cast<double>(model_->graph().spec(node).input("experts").width());
      if (streams == 1) {
        EXPECT_EQ(times->distinct_experts[n], each);
      }
      EXPECT_GE(times->distinct_experts[n], each);
      EXPECT_LE(times->distinct_experts[n], each * static_cast<double>(streams));
    }
  }
}

TEST_F(MeterTest, ContextsFillTheirPagesAndGiveThemBack) {
  const std::int64_t free = model_->cache().free_pages();
  for (const auto& [depth, computed] : {std::pair<std::int64_t, std::int64_t>{0, 0},
                                        {50, 50},
                                        {64, 64},
                                        {200, 128},
                                        {330, 128},
                                        {331, 331}}) {
    std::int64_t last = 0;
    ASSERT_TRUE(meter_->deepen(depth, computed, [&](std::int64_t done, std::int64_t) { last = done; }).ok());
    EXPECT_EQ(model_->cache().free_pages(), free - kStreams * ((depth + 63) / 64)) << depth;
    ASSERT_TRUE(meter_->prefill(20, 48, 1, false).ok());
    ASSERT_TRUE(meter_->decode(3, 2, 1, false).ok());
    EXPECT_EQ(model_->cache().free_pages(), free - kStreams * ((depth + 63) / 64)) << depth;
  }
  const auto beyond = meter_->prefill(1000, 48, 1, false);
  ASSERT_FALSE(beyond.ok());
  EXPECT_NE(beyond.error().message.find("free pages"), std::string::npos);
  meter_.reset();
  EXPECT_TRUE(model_->cache().check_integrity({}).ok());
  EXPECT_EQ(model_->cache().free_pages(), free);
}

TEST_F(MeterTest, RepeatedContextsComputeOnlyWhatCompletesPages) {
  const auto computed_up_to = [&](std::int64_t depth) {
    std::int64_t tokens = 0;
    const auto progress = [&](std::int64_t done, std::int64_t total) { tokens += done == total ? total : 0; };
    EXPECT_TRUE(meter_->deepen(depth, 70, progress).ok());
    return tokens;
  };
  EXPECT_EQ(computed_up_to(100), 64 + 36);
  EXPECT_EQ(computed_up_to(360), 28 + 40);  // the page that was begun, and the last one
}

TEST_F(MeterTest, BoundsAreThoseOfWhatIsComputedAndOfWhatIsHeld) {
  const auto silent = step_costs(*model_, 1, 8, 128, true, false);
  const auto heard = step_costs(*model_, 1, 8, 128, true, true);
  for (std::size_t n = 0; n < heard.size(); ++n) {
    const Node& node = model_->graph().nodes()[n];
    const std::string kind = node_kind(node);
    if (kind == "linear (head)") {
      EXPECT_EQ(silent[n].cost.weight_bytes, 0);
      EXPECT_GT(heard[n].cost.weight_bytes, 0);
    }
    // The checkpoint has experts in 4 bits, and all else in bf16.
    const std::string_view op = node.contract->name;
    if (op == "moe_experts") {
      EXPECT_EQ(heard[n].arith, Arith::kInt8);
    } else if (op == "mla" || kind == "linear (head)") {
      EXPECT_EQ(heard[n].arith, Arith::kBF16);
    }
  }
}

TEST_F(MeterTest, CostsAddUpOverStreamsAndCountWhatIsHeld) {
  const auto one = step_costs(*model_, 1, 1, 128, false, true);
  const auto three = step_costs(*model_, kStreams, 1, 128, false, true);
  std::vector<double> all_the_same(one.size(), 0);
  for (std::size_t n = 0; n < one.size(); ++n) {
    const Node& node = model_->graph().nodes()[n];
    EXPECT_DOUBLE_EQ(three[n].cost.flops, kStreams * one[n].cost.flops) << node.contract->name;
    EXPECT_DOUBLE_EQ(three[n].cost.cache_bytes, kStreams * one[n].cost.cache_bytes) << node.contract->name;
    EXPECT_GE(three[n].cost.weight_bytes, one[n].cost.weight_bytes) << node.contract->name;
    EXPECT_LE(three[n].cost.weight_bytes, kStreams * one[n].cost.weight_bytes + 1e-6) << node.contract->name;
    if (node.contract->name == "linear") {
      EXPECT_DOUBLE_EQ(one[n].cost.weight_bytes,
                       static_cast<double>(model_->program().kernel(n).weight_bytes()));
    }
    if (node.contract->name == "moe_experts") {
      all_the_same[n] = static_cast<double>(model_->graph().spec(node).input("experts").width());
    }
    EXPECT_EQ(one[n].reads_context, node.contract->name == "mla" || node.contract->name == "dsa_index");
  }
  const auto shared = step_costs(*model_, kStreams, 1, 128, false, true, all_the_same);
  for (std::size_t n = 0; n < one.size(); ++n) {
    if (all_the_same[n] > 0) {
      EXPECT_NEAR(shared[n].cost.weight_bytes, one[n].cost.weight_bytes, 1);
    }
  }
}

TEST(StepCost, CountsWhatTheRunHoldsAndReads) {
  const auto load = [](bool f32, bool expanded) {
    auto model = dummy_model("kimi_linear_b", [&](LoadOptions& options, const TracedModel&) {
      options.f32 = f32;
      options.context = 128;
      options.settings.expanded_prefill = expanded;
    });
    check(model.ok(), "loaded");
    return std::move(*model);
  };
  const std::unique_ptr<Model> plain = load(false, false);
  const std::unique_ptr<Model> wide = load(true, false);
  const std::unique_ptr<Model> both_forms = load(false, true);
  const auto costs = [](const Model& model, bool prompt) {
    return step_costs(model, 1, 1, 100, prompt, true);
  };
  const auto generated = costs(*plain, false);
  const auto in_f32 = costs(*wide, false);
  const auto absorbed = costs(*both_forms, false);
  const auto expanded = costs(*both_forms, true);
  for (std::size_t n = 0; n < generated.size(); ++n) {
    const std::string_view op = plain->graph().nodes()[n].contract->name;
    // The state of kda is f32 in every mode.
    const double factor = op == "mla" || op == "short_conv" ? 2 : 1;
    EXPECT_DOUBLE_EQ(in_f32[n].cost.cache_bytes, factor * generated[n].cost.cache_bytes) << op;
    // kv_b is held for both forms, and a step reads that of one.
    EXPECT_DOUBLE_EQ(absorbed[n].cost.weight_bytes, generated[n].cost.weight_bytes) << op;
    if (op != "mla") continue;
    EXPECT_GT(generated[n].cost.cache_bytes, 0);
    EXPECT_LT(expanded[n].cost.weight_bytes,
              static_cast<double>(both_forms->program().kernel(n).weight_bytes()));
  }
}

TEST(StepCost, KindsOfNodes) {
  Node node;
  node.contract = *find_contract("add");
  EXPECT_EQ(node_kind(node), "add");
  node.scope = "head";
  EXPECT_EQ(node_kind(node), "add (head)");
  node.scope = "layers.3.mlp";
  EXPECT_EQ(node_kind(node), "add (mlp)");
}

}  // namespace
}  // namespace firstlight::testing
