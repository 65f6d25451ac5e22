#include "text/bpe.h"

#include <gtest/gtest.h>

#include <chrono>
#include <set>

#include "text/test_data.h"
#include "text/tiktoken_file.h"

namespace firstlight {
namespace {

/// The definition, word for word, on strings.
std::vector<std::int32_t> naive_bpe(const Vocabulary& vocabulary, const std::string& piece) {
  if (vocabulary.find(piece) != Vocabulary::kNone) return {vocabulary.find(piece)};
  std::vector<std::string> parts;
  for (const char c : piece) parts.emplace_back(1, c);
  for (;;) {
    std::size_t best = 0;
    std::int32_t best_rank = Vocabulary::kNone;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const std::int32_t rank = vocabulary.find(parts[i] + parts[i + 1]);
      if (rank == Vocabulary::kNone || (best_rank != Vocabulary::kNone && rank >= best_rank)) continue;
      best = i;
      best_rank = rank;
    }
    if (best_rank == Vocabulary::kNone) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  std::vector<std::int32_t> ids;
  for (const std::string& part : parts) ids.push_back(vocabulary.find(part));
  return ids;
}

Vocabulary vocabulary_of(const std::vector<std::string>& more) {
  auto parsed = parse_tiktoken_file(text_test::small_model(more), "model");
  check(parsed.ok(), "test vocabulary");
  return std::move(*parsed);
}

std::vector<std::int32_t> encode(const Vocabulary& vocabulary, const std::string& piece) {
  BpeScratch scratch;
  std::vector<std::int32_t> ids;
  bpe_encode(vocabulary, piece, scratch, ids);
  return ids;
}

TEST(Bpe, LeftmostOfEqualRanksAndWholePiece) {
  const Vocabulary v = vocabulary_of({"aa", "bc", "ab", "xyz"});
  EXPECT_EQ(encode(v, "aaa"), (std::vector<std::int32_t>{256, 'a'}));
  EXPECT_EQ(encode(v, "abc"), (std::vector<std::int32_t>{'a', 257}));
  EXPECT_EQ(encode(v, "xyz"), (std::vector<std::int32_t>{259}));  // not reachable by joining pairs
  EXPECT_EQ(encode(v, "xyzx"), (std::vector<std::int32_t>{'x', 'y', 'z', 'x'}));
  EXPECT_TRUE(encode(v, "").empty());
}

// Random vocabularies over three letters, dense enough that most pairs join, in pieces on both sides of
// the length where the algorithm changes.
TEST(Bpe, EqualsTheDefinitionOnRandomPieces) {
  Random random(7);
  for (int round = 0; round < 60; ++round) {
    std::set<std::string> words;
    while (words.size() < 40) {
      std::string word;
      const std::size_t length = 2 + random() % 6;
      while (word.size() < length) word += static_cast<char>('a' + random() % 3);
      words.insert(word);
    }
    std::vector<std::string> shuffled(words.begin(), words.end());
    for (std::size_t i = shuffled.size(); i > 1; --i) std::swap(shuffled[i - 1], shuffled[random() % i]);
    const Vocabulary v = vocabulary_of(shuffled);
    for (int k = 0; k < 40; ++k) {
      std::string piece;
      const std::size_t length = k % 2 == 0 ? 1 + random() % 30 : 80 + random() % 240;
      while (piece.size() < length) piece += static_cast<char>('a' + random() % (k % 5 == 0 ? 1 : 3));
      ASSERT_EQ(encode(v, piece), naive_bpe(v, piece)) << piece;
    }
  }
}

TEST(Bpe, AMegabyteOfOneLetterIsNoTrouble) {
  const Vocabulary v = vocabulary_of({"aa", "aaaa", "aaaaaaaa"});
  const std::string piece(1'000'001, 'a');
  const auto start = std::chrono::steady_clock::now();
  const auto ids = encode(v, piece);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(ids.size(), 125'001U);
  std::printf("one piece of 1,000,001 letters: %.3f s\n", seconds.count());
}

}  // namespace
}  // namespace firstlight
