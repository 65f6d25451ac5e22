#include "text/bpe.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "text/test_data.h"
#include "text/tiktoken_file.h"

namespace firstlight {
namespace {

using Ids = std::vector<std::int32_t>;
using Merge = MergeTable::Merge;

/// The definition, word for word.
Ids naive_bpe(const std::vector<Merge>& merges, Ids symbols) {
  for (;;) {
    std::size_t best_rank = merges.size();
    std::size_t best = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      for (std::size_t rank = 0; rank < best_rank; ++rank) {
        if (merges[rank].left != symbols[i] || merges[rank].right != symbols[i + 1]) continue;
        best_rank = rank;
        best = i;
      }
    }
    if (best_rank == merges.size()) return symbols;
    symbols[best] = merges[best_rank].result;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

Ids merged(const MergeTable& table, Ids symbols) {
  BpeMerger(table).merge(symbols);
  return symbols;
}

/// Merges of random words over a few letters (ids from 0): every way to join two known words to a third one,
/// in random order, so that joins often enable others of lower rank.
std::vector<Merge> random_merges(Random& random, std::size_t letters, std::size_t words) {
  std::vector<std::string> known;
  for (std::size_t i = 0; i < letters; ++i) known.emplace_back(1, static_cast<char>('a' + i));
  for (std::size_t tries = 0; known.size() < letters + words && tries < 1000; ++tries) {
    const std::string word = known[random() % known.size()] + known[random() % known.size()];
    if (std::find(known.begin(), known.end(), word) == known.end()) known.push_back(word);
  }
  std::vector<Merge> merges;
  const auto id_of = [&](const std::string& word) {
    return static_cast<std::int32_t>(std::find(known.begin(), known.end(), word) - known.begin());
  };
  for (const std::string& word : known) {
    for (std::size_t cut = 1; cut < word.size(); ++cut) {
      const Merge merge = {id_of(word.substr(0, cut)), id_of(word.substr(cut)), id_of(word)};
      const auto size = static_cast<std::int32_t>(known.size());
      if (merge.left != size && merge.right != size) merges.push_back(merge);
    }
  }
  for (std::size_t i = merges.size(); i > 1; --i) std::swap(merges[i - 1], merges[random() % i]);
  return merges;
}

TEST(Bpe, LeftmostOfEqualRanks) {
  const MergeTable table = MergeTable::by_position({{0, 0, 2}, {1, 0, 3}, {0, 1, 4}});
  EXPECT_EQ(merged(table, {0, 0, 0}), (Ids{2, 0}));
  EXPECT_EQ(merged(table, {0, 1, 0}), (Ids{0, 3}));
  EXPECT_EQ(merged(table, {0}), (Ids{0}));
  EXPECT_EQ(merged(table, {}), Ids{});
}

TEST(Bpe, TheLastOfEqualMergesCounts) {
  const MergeTable table = MergeTable::by_position({{0, 1, 3}, {1, 2, 4}, {0, 1, 5}});
  EXPECT_EQ(merged(table, {0, 1, 2}), (Ids{0, 4}));
  EXPECT_EQ(merged(table, {0, 1}), (Ids{5}));
  EXPECT_EQ(table.find(2, 1), MergeTable::kNone);
}

TEST(Bpe, ShortPiecesEqualTheDefinition) {
  Random random(7);
  for (int round = 0; round < 300; ++round) {
    const std::size_t letters = 1 + random() % 4;
    const auto merges = random_merges(random, letters, random() % 20);
    const MergeTable table = MergeTable::by_position(merges);
    for (int k = 0; k < 30; ++k) {
      Ids symbols;
      const std::size_t length = k % 3 == 0 ? 40 + random() % 120 : random() % 30;
      while (symbols.size() < length) symbols.push_back(static_cast<std::int32_t>(random() % letters));
      ASSERT_EQ(merged(table, symbols), naive_bpe(merges, symbols)) << round;
    }
  }
}

// The queue, and the heap where joins of lower rank keep appearing.
TEST(Bpe, LongPiecesEqualTheDefinition) {
  Random random(8);
  for (int round = 0; round < 12; ++round) {
    const std::size_t letters = 1 + static_cast<std::size_t>(round) % 3;
    const auto merges = random_merges(random, letters, 2 + random() % 12);
    const MergeTable table = MergeTable::by_position(merges);
    BpeMerger merger(table);
    for (int k = 0; k < 2; ++k) {
      Ids symbols;
      while (symbols.size() < 4'300) symbols.push_back(static_cast<std::int32_t>(random() % letters));
      Ids expected = naive_bpe(merges, symbols);
      merger.merge(symbols);
      ASSERT_EQ(symbols, expected) << round;
    }
  }
}

TEST(Bpe, MergesByResultJoinTheTokenOfLowestId) {
  const std::vector<Merge> merges = {{0, 1, 9}, {1, 2, 4}, {4, 3, 7}};
  const MergeTable table = MergeTable::by_result([&](const auto& take) {
    for (const Merge& merge : merges) take(merge);
  });
  EXPECT_EQ(merged(table, {0, 1, 2, 3}), (Ids{0, 7}));
}

TEST(RankQueue, GivesPositionsByRankInOrder) {
  Random random(9);
  for (const std::uint32_t limit : {1U, 64U, 65U, 5000U, 300'000U}) {
    RankQueue queue(limit);
    std::set<std::pair<std::uint32_t, std::uint32_t>> expected;
    for (int i = 0; i < 2'000; ++i) {
      const auto rank = static_cast<std::uint32_t>(random() % limit);
      const auto position = static_cast<std::uint32_t>(random());
      if (expected.emplace(rank, position).second) queue.push(rank, position);
      if (i % 3 != 0) continue;
      const std::uint32_t lowest = queue.lowest();
      ASSERT_EQ(lowest, expected.begin()->first);
      std::vector<std::uint32_t> positions;
      queue.take(lowest, positions);
      for (const std::uint32_t p : positions) {
        ASSERT_EQ(*expected.begin(), std::pair(lowest, p));
        expected.erase(expected.begin());
      }
    }
  }
}

}  // namespace
}  // namespace firstlight
