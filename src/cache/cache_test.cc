#include "cache/cache.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"

namespace firstlight {
namespace {

CacheSpec spec(const char* name, CacheSpec::Scope scope, std::int64_t elements, CacheSpec::Storage storage) {
  return {.name = name, .scope = scope, .elements = elements, .storage = storage};
}

TEST(CacheLayout, PlacesByScopeAndMode) {
  using Scope = CacheSpec::Scope;
  using Storage = CacheSpec::Storage;
  const std::vector<std::vector<CacheSpec>> declared = {
      {spec("latent", Scope::kPerPage, 64 * 48, Storage::kCompute)},
      {},
      {spec("conv", Scope::kPerSequence, 3 * 10, Storage::kCompute),
       spec("state", Scope::kPerSequence, 100, Storage::kF32)},
      {spec("keys", Scope::kPerPage, 64, Storage::kCompute)}};
  const CacheLayout f32 = make_cache_layout(declared, true);
  EXPECT_EQ(f32.page_bytes, 64 * 48 * 4 + 256);
  EXPECT_EQ(f32.state_bytes, 128 + 448);
  const CacheLayout bf16 = make_cache_layout(declared, false);
  EXPECT_EQ(bf16.page_bytes, 64 * 48 * 2 + 128);
  EXPECT_EQ(bf16.state_bytes, 64 + 448);
  EXPECT_EQ(bf16.nodes[2][1].dtype, DType::kF32);
  EXPECT_EQ(bf16.nodes[2][1].offset, 64);
  EXPECT_EQ(bf16.nodes[3][0].offset, 64 * 48 * 2);
  EXPECT_TRUE(bf16.nodes[1].empty());
}

TEST(CachePool, PagesAndStatesAreOwnedOnceWhateverHappens) {
  CacheLayout layout;
  layout.page_bytes = 128;
  layout.state_bytes = 64;
  constexpr std::int64_t kPages = 20;
  constexpr std::int64_t kSequences = 4;
  auto pool = CachePool::create(layout, kPages, kSequences);
  ASSERT_TRUE(pool.ok());
  std::vector<SequenceCache> sequences(6);
  std::vector<std::int64_t> tokens(6, 0);
  Random random(1);
  int refusals = 0;
  for (int step = 0; step < 3000; ++step) {
    const std::size_t s = random() % sequences.size();
    if (sequences[s].slot < 0) {
      const Status opened = (*pool)->open(sequences[s]);
      const auto open = std::ranges::count_if(sequences, [](const SequenceCache& c) { return c.slot >= 0; });
      EXPECT_TRUE(opened.ok() || open == kSequences);
      if (opened.ok()) {
        const std::uint8_t* state = (*pool)->state(sequences[s]);
        EXPECT_TRUE(std::all_of(state, state + 64, [](std::uint8_t b) { return b == 0; }));
        (*pool)->state(sequences[s])[5] = 7;
        tokens[s] = 0;
      }
    } else if (random() % 4 == 0) {
      (*pool)->close(sequences[s]);
    } else if (random() % 4 == 0) {
      tokens[s] = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(tokens[s] + 1));
      (*pool)->truncate(sequences[s], tokens[s]);
    } else {
      const auto wanted = tokens[s] + static_cast<std::int64_t>(random() % 300);
      const std::size_t before = sequences[s].pages.size();
      if ((*pool)->grow(sequences[s], wanted).ok()) {
        tokens[s] = wanted;
        EXPECT_GE(std::ssize(sequences[s].pages) * kPageTokens, wanted);
      } else {
        ++refusals;
        EXPECT_EQ(sequences[s].pages.size(), before);
      }
    }
    std::vector<const SequenceCache*> all;
    for (const SequenceCache& c : sequences) all.push_back(&c);
    const Status integrity = (*pool)->check_integrity(all);
    ASSERT_TRUE(integrity.ok()) << integrity.error().message;
  }
  EXPECT_GT(refusals, 0);
}

TEST(CachePool, IntegrityFindsALostPage) {
  CacheLayout layout;
  layout.page_bytes = 64;
  auto pool = CachePool::create(layout, 3, 1);
  SequenceCache sequence;
  ASSERT_TRUE((*pool)->open(sequence).ok());
  ASSERT_TRUE((*pool)->grow(sequence, 65).ok());
  ASSERT_TRUE((*pool)->check_integrity({&sequence}).ok());
  sequence.pages.pop_back();
  EXPECT_FALSE((*pool)->check_integrity({&sequence}).ok());
}

}  // namespace
}  // namespace firstlight
