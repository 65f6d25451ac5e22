// The entries of quantization_config's lists of modules, matched against names of tensors.
#pragma once

#include <bitset>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace firstlight {

/// Names longer than this match no pattern: positions are kept in a set of fixed size.
inline constexpr std::size_t kLongestMatched = 511;

/// A regular expression of the kind these lists use: literals, `.`, `\.` and other escaped signs, `\d`,
/// [classes], (groups|of|alternatives), `*`, `+`, `?`, `^` and `$` at the ends. Matching takes time in
/// proportion to the pattern times the name, whatever is in them. Like Python's re.match: from the first
/// letter, not necessarily to the last.
class NamePattern {
 public:
  /// `pattern` without "re:"; an Error says what is not understood.
  static Result<NamePattern> regex(std::string_view pattern);
  /// Literal text, in which `*` stands for any text.
  static NamePattern glob(std::string_view pattern);

  using Positions = std::bitset<kLongestMatched + 1>;
  /// Where in `name` a match may end that begins at 0.
  [[nodiscard]] Positions ends(std::string_view name) const;

  struct Node;

 private:
  std::shared_ptr<const Node> root_;
};

/// The list of modules that quantization_config leaves as they were.
class ModuleList {
 public:
  /// Entries as Quantization::not_converted has them.
  static Result<ModuleList> create(const std::vector<std::string>& entries);

  /// The entry that covers the module to which the tensor belongs ("a.b" for "a.b.weight"), or null. An entry
  /// covers a module of its name, those inside, and those whose last components it names.
  [[nodiscard]] const std::string* covering(std::string_view tensor) const;

 private:
  struct Entry {
    std::string text;
    NamePattern pattern;
    bool regex;
  };
  std::vector<std::string> exact_;  // sorted
  std::vector<Entry> patterns_;
};

}  // namespace firstlight
