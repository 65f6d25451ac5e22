// Byte strings numbered by id, and the way back from a byte string to its id.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace firstlight {

/// Distinct byte strings with ids in [0, size); an id may be without one. Immutable once built.
class Vocabulary {
 public:
  /// Without tokens.
  Vocabulary() : slots_(1) { byte_ids_.fill(kNone); }

  struct Span {
    std::uint32_t offset = 0;
    std::uint32_t length = 0;
  };

  /// `spans[id]` lies in `blob`; an empty one is an id without token. Fails with a sentence (without the
  /// file's name) when two ids share their bytes.
  static Result<Vocabulary> build(std::string blob, std::vector<Span> spans);

  [[nodiscard]] std::int32_t size() const { return static_cast<std::int32_t>(spans_.size()); }
  /// Empty for an id without token.
  [[nodiscard]] std::string_view bytes(std::int32_t id) const {
    return bytes_of(spans_[static_cast<std::size_t>(id)]);
  }
  /// The id of exactly these bytes, or kNone.
  [[nodiscard]] std::int32_t find(std::string_view bytes) const;
  /// The id of a single byte, or kNone.
  [[nodiscard]] std::int32_t byte_id(std::uint8_t b) const { return byte_ids_[b]; }
  /// No token has more bytes.
  [[nodiscard]] std::size_t longest() const { return longest_; }

  static constexpr std::int32_t kNone = -1;

 private:
  struct Slot {
    std::uint32_t tag = 0;  // upper half of the hash: spares most comparisons of bytes
    std::int32_t id = kNone;
  };

  [[nodiscard]] std::string_view bytes_of(Span s) const { return {blob_.data() + s.offset, s.length}; }

  std::string blob_;
  std::vector<Span> spans_;  // [size]
  std::vector<Slot> slots_;  // open addressing; a power of two, at most half full
  std::size_t longest_ = 0;  // no find() looks at more bytes than this
  std::array<std::int32_t, 256> byte_ids_{};
};

}  // namespace firstlight
