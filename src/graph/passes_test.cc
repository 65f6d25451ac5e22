#include "graph/passes.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/random.h"

namespace firstlight {
namespace {

ValueId weight(Graph& g, const std::string& name, Shape shape) {
  auto w = g.weight({.name = name, .shape = std::move(shape), .also = {}, .padded = 0});
  EXPECT_TRUE(w.ok());
  return *w;
}

ValueId one(Result<std::vector<ValueId>> outputs) {
  EXPECT_TRUE(outputs.ok()) << (outputs.ok() ? "" : outputs.error().message);
  return outputs->front();
}

/// tokens -> embedding -> two linears of one input -> silu_mul -> linear -> logits.
Graph small_graph() {
  Graph g("small");
  g.set_scope("layer");
  const ValueId x = one(g.add("embedding", {{g.tokens()}, {weight(g, "embed", {10, 8})}}, {}));
  const ValueId gate = one(g.add("linear", {{x}, {weight(g, "gate", {6, 8})}}, {}));
  const ValueId norm = one(g.add("rms_norm", {{x}, {weight(g, "norm", {8})}}, {{"eps", 1e-5}}));
  const ValueId up = one(g.add("linear", {{x}, {weight(g, "up", {6, 8})}}, {}));
  const ValueId routed =
      one(g.add("linear", {{x}, {weight(g, "router", {4, 8})}}, {{"precision", std::string("f32")}}));
  const ValueId hidden = one(g.add("silu_mul", {{gate}, {up}}, {}));
  EXPECT_TRUE(g.name(hidden, "hidden.0").ok());
  const ValueId sampled = one(g.add("sampled_rows", {{hidden}}, {}));
  g.set_logits(one(g.add("linear", {{sampled}, {weight(g, "head", {10, 6})}}, {})));
  (void)norm;
  (void)routed;
  return g;
}

TEST(Graph, TextFormIsReadable) {
  EXPECT_EQ(graph_text(small_graph()),
            "graph small\n"
            "%0 = tokens : i32[T]\n"
            "\n# layer\n"
            "%1 = embedding(%0, weight=embed) : f32[T, 8]\n"
            "%2 = linear(%1, weight=[gate]) : f32[T, 6]\n"
            "%3 = rms_norm(%1, weight=norm, eps=1e-05) : f32[T, 8]\n"
            "%4 = linear(%1, weight=[up]) : f32[T, 6]\n"
            "%5 = linear(%1, weight=[router], precision=\"f32\") : f32[T, 4]\n"
            "%6 = silu_mul(%2, up=%4) : f32[T, 6]  ; hidden.0\n"
            "%7 = sampled_rows(%6) : f32[R, 6]\n"
            "%8 = linear(%7, weight=[head]) : f32[R, 10]\n"
            "\nreturn %8\n");
}

TEST(Graph, ErrorsNameOperatorInputAndAttribute) {
  Graph g("bad");
  const ValueId x = one(g.add("embedding", {{g.tokens()}, {weight(g, "embed", {10, 8})}}, {}));
  const auto error = [&](auto result) { return result.ok() ? std::string() : result.error().message; };
  EXPECT_NE(error(g.add("liner", {{x}}, {})).find("linear"), std::string::npos);  // lists what there is
  EXPECT_NE(error(g.add("linear", {{x}}, {})).find("`weight` is missing"), std::string::npos);
  EXPECT_NE(error(g.add("linear", {{x}, {x}}, {})).find("takes a weight"), std::string::npos);
  EXPECT_NE(error(g.add("linear", {{x}, {weight(g, "w", {6, 7})}}, {})).find("width 8"), std::string::npos);
  EXPECT_NE(error(g.add("rms_norm", {{x}, {weight(g, "n", {8})}}, {})).find("`eps`"), std::string::npos);
  EXPECT_NE(error(g.add("rms_norm", {{x}, {weight(g, "n", {8})}}, {{"eps", true}})).find("a number"),
            std::string::npos);
  EXPECT_NE(error(g.add("add", {{x}, {x}}, {{"scale", 2.0}})).find("`scale`"), std::string::npos);
  EXPECT_NE(error(g.add("add", {{x, x}, {x}}, {})).find("not a list"), std::string::npos);
  EXPECT_NE(error(g.weight({.name = "w", .shape = {7, 6}, .also = {}, .padded = 0})).find("used with shapes"),
            std::string::npos);
  EXPECT_FALSE(g.weight({.name = "zero", .shape = {0, 6}, .also = {}, .padded = 0}).ok());
  EXPECT_TRUE(g.name(x, "hidden.0").ok());
  EXPECT_FALSE(g.name(x, "hidden.0").ok());
}

TEST(Passes, FusesLinearsOfOneInputAndPrecision) {
  Graph g = small_graph();
  ASSERT_TRUE(verify_graph(g).ok());
  EXPECT_EQ(fuse_linears(g), 1);
  ASSERT_TRUE(verify_graph(g).ok()) << verify_graph(g).error().message;
  const std::string text = graph_text(g);
  EXPECT_NE(text.find("linear(%1, weight=[gate, up]) : f32[T, 6], f32[T, 6]"), std::string::npos) << text;
  EXPECT_NE(text.find("weight=[router]"), std::string::npos);
  EXPECT_EQ(fuse_linears(g), 0);
  std::int64_t saved = 0;
  for (const Node& node : g.nodes()) saved += saved_bytes(g, node);
  EXPECT_EQ(saved, 8 * 4);  // one row of `embed` less
}

TEST(Passes, BufferPlanNeverOverlapsWhatLivesTogether) {
  Random random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<Lifetime> lifetimes;
    const auto count = 1 + random() % 40;
    std::int64_t total = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto first = static_cast<std::int32_t>(random() % 20);
      const auto length = static_cast<std::int32_t>(random() % 6);
      lifetimes.push_back({static_cast<std::int64_t>(random() % 500), first, first + length});
      total += (lifetimes.back().bytes + 63) / 64 * 64;
    }
    const BufferPlan plan = plan_buffers(lifetimes);
    EXPECT_LE(plan.bytes, total);
    for (std::size_t i = 0; i < lifetimes.size(); ++i) {
      EXPECT_EQ(plan.offsets[i] % 64, 0);
      EXPECT_LE(plan.offsets[i] + lifetimes[i].bytes, plan.bytes);
      for (std::size_t j = 0; j < i; ++j) {
        if (lifetimes[i].last < lifetimes[j].first || lifetimes[j].last < lifetimes[i].first) continue;
        const bool apart = plan.offsets[i] + lifetimes[i].bytes <= plan.offsets[j] ||
                           plan.offsets[j] + lifetimes[j].bytes <= plan.offsets[i];
        EXPECT_TRUE(apart || lifetimes[i].bytes == 0 || lifetimes[j].bytes == 0);
      }
    }
  }
}

TEST(Passes, BufferPlanReusesWhatIsFree) {
  // A chain: each value lives for two nodes, so two buffers are enough.
  std::vector<Lifetime> chain;
  for (std::int32_t n = 0; n < 50; ++n) chain.push_back({640, n, n + 1});
  EXPECT_EQ(plan_buffers(chain).bytes, 2 * 640);
}

}  // namespace
}  // namespace firstlight
