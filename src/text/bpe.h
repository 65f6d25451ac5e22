// Byte-pair encoding of one piece: repeatedly joins the adjacent pair whose bytes have the lowest rank,
// the leftmost of equals first, until no pair is a token.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace firstlight {

/// Memory that encoding pieces one after the other reuses. Holds nothing between calls.
struct BpeScratch {
  struct Part {
    std::uint32_t start;
    std::int32_t pair_rank;  // of this part joined with the next; kNone when that is no token
  };
  struct Node {
    std::uint32_t previous;
    std::uint32_t next;  // start of the next part = end of this one
  };
  struct Candidate {
    std::int32_t rank;
    std::uint32_t start;
    std::uint32_t end;
  };
  std::vector<Part> parts;
  std::vector<Node> nodes;  // by start of the part
  std::vector<Candidate> heap;
};

/// Appends the ranks of `piece` (at most 2^32 - 2 bytes). A piece that is a token is taken at once.
void bpe_encode(const Vocabulary& vocabulary, std::string_view piece, BpeScratch& scratch,
                std::vector<std::int32_t>& out);

}  // namespace firstlight
