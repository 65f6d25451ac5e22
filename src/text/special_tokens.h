// The special tokens of a vocabulary, and where the next of them stands in a text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/text_set.h"

namespace firstlight {

class SpecialTokens {
 public:
  /// `contents[i]` is the text of id `first_id` + i. Fails when two share a text.
  static Result<SpecialTokens> build(std::int32_t first_id, std::vector<std::string> contents);

  struct Match {
    std::size_t begin;
    std::size_t length;
    std::int32_t id;
  };
  /// The leftmost special token in `text` at or after `from`, the longest of those that begin there.
  [[nodiscard]] std::optional<Match> find(std::string_view text, std::size_t from) const;

  [[nodiscard]] std::optional<std::int32_t> id(std::string_view content) const;
  [[nodiscard]] bool contains(std::int32_t id) const { return id >= first_id_ && id - first_id_ < size(); }
  [[nodiscard]] std::string_view content(std::int32_t id) const {
    return contents_[static_cast<std::size_t>(id - first_id_)];
  }
  [[nodiscard]] std::int32_t size() const { return static_cast<std::int32_t>(contents_.size()); }

 private:
  SpecialTokens() = default;

  std::int32_t first_id_ = 0;
  TextSet contents_;  // by id - first_id_
};

}  // namespace firstlight
