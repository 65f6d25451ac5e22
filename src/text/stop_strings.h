// Finds the first stop string in text that arrives in parts, and lets no part of it out.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace firstlight {

/// "First" is the stop string that is complete earliest; of those complete at the same place, the longest.
/// The result does not depend on how the text was cut. What may still become a stop string is held back,
/// nothing more. Text must come in whole characters (as StreamDecoder gives it); then whole ones leave.
class StopStrings {
 public:
  /// Stop strings must be valid UTF-8 and not empty.
  static Result<StopStrings> create(const std::vector<std::string>& stops);

  /// Appends to `out` what is certain not to belong to a stop string. Once stopped(), nothing more.
  void push(std::string_view text, std::string& out);

  /// No more text will come: appends what was held back, unless stopped.
  void finish(std::string& out);

  [[nodiscard]] bool stopped() const { return matched_.has_value(); }
  /// The index of the stop string that was found.
  [[nodiscard]] std::optional<std::size_t> matched() const { return matched_; }

 private:
  /// One stop string as a Knuth-Morris-Pratt automaton.
  struct Stop {
    std::string text;
    std::vector<std::size_t> border;  // [i]: longest proper prefix of text[0, i] that is also its suffix
    std::size_t seen = 0;             // longest prefix of text that the text so far ends with
    void advance(char c);
  };

  StopStrings() = default;

  std::vector<Stop> stops_;
  std::string held_;  // the end of the text so far: as long as the largest `seen`
  std::optional<std::size_t> matched_;
};

}  // namespace firstlight
