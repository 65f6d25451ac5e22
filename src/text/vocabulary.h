// Byte strings numbered by rank, and the way back from a byte string to its rank.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace firstlight {

/// Every rank in [0, size) has a distinct, non-empty token, and every single byte is a token: any text
/// can be encoded. Immutable once built.
class Vocabulary {
 public:
  struct Span {
    std::uint32_t offset = 0;
    std::uint32_t length = 0;
  };

  /// `spans[rank]` lies in `blob`. Fails with a sentence (without the file's name) when two ranks share
  /// their bytes or a single byte has no token.
  static Result<Vocabulary> build(std::string blob, std::vector<Span> spans);

  [[nodiscard]] std::int32_t size() const { return static_cast<std::int32_t>(spans_.size()); }
  [[nodiscard]] std::string_view bytes(std::int32_t rank) const {
    return bytes_of(spans_[static_cast<std::size_t>(rank)]);
  }
  /// The rank of exactly these bytes, or kNone.
  [[nodiscard]] std::int32_t find(std::string_view bytes) const;
  [[nodiscard]] std::int32_t byte_rank(std::uint8_t b) const { return byte_ranks_[b]; }

  static constexpr std::int32_t kNone = -1;

 private:
  struct Slot {
    std::uint32_t tag = 0;  // upper half of the hash: spares most comparisons of bytes
    std::int32_t rank = kNone;
  };

  Vocabulary() = default;
  [[nodiscard]] std::string_view bytes_of(Span s) const { return {blob_.data() + s.offset, s.length}; }

  std::string blob_;
  std::vector<Span> spans_;  // [size]
  std::vector<Slot> slots_;  // open addressing; a power of two, at most half full
  std::size_t longest_ = 0;  // no find() looks at more bytes than this
  std::array<std::int32_t, 256> byte_ranks_{};
};

}  // namespace firstlight
