// A set of texts, and where the next of them stands in a longer text.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace firstlight {

class TextSet {
 public:
  TextSet() = default;
  /// None may be empty; of equal ones the first counts.
  explicit TextSet(std::vector<std::string> texts);

  struct Match {
    std::size_t begin;
    std::size_t length;
    std::size_t index;  // in the vector given
  };
  /// The leftmost of the texts in `text` at or after `from`, the longest of those that begin there.
  [[nodiscard]] std::optional<Match> find(std::string_view text, std::size_t from) const;

  /// The index of exactly this text.
  [[nodiscard]] std::optional<std::size_t> index_of(std::string_view text) const;

  [[nodiscard]] std::string_view operator[](std::size_t index) const { return texts_[index]; }
  [[nodiscard]] std::size_t size() const { return texts_.size(); }

  /// Two indices of equal texts.
  [[nodiscard]] std::optional<std::pair<std::size_t, std::size_t>> duplicate() const;

 private:
  [[nodiscard]] std::optional<Match> longest_at(std::string_view text, std::size_t begin) const;

  std::vector<std::string> texts_;
  std::vector<std::uint32_t> sorted_;  // indices by text
  struct Range {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  std::array<Range, 256> by_first_byte_{};  // in sorted_
};

}  // namespace firstlight
