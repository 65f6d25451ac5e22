// The "pre_tokenizer" of tokenizer.json: how a text is cut into the pieces that are encoded one by one.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "text/split_pattern.h"

namespace firstlight {

/// Takes the pieces of a text, in order. A piece is valid only during the call.
class PieceSink {
 public:
  virtual Status piece(std::string_view piece) = 0;

 protected:
  ~PieceSink() = default;
};

/// ByteLevel, Split, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit, CharDelimiterSplit, and
/// Sequences of them.
class PreTokenizer {
 public:
  /// `json` may be null: then a text is one piece. `path` ("tokenizer.json: pre_tokenizer") begins messages.
  static Result<PreTokenizer> create(const nlohmann::ordered_json& json, const std::string& path);

  /// Whether ByteLevel comes last. Then pieces are plain text, and the vocabulary is to be read as bytes;
  /// without it, pieces are what the vocabulary's letters spell.
  [[nodiscard]] bool ends_in_bytes() const { return ends_in_bytes_; }

  /// Whether a text is cut at all.
  [[nodiscard]] bool cuts() const;

  /// One text after the other, on one thread. The pre-tokenizer must outlive it and stay in place.
  class Splitter {
   public:
    explicit Splitter(const PreTokenizer& pre_tokenizer);
    /// Gives the pieces of valid UTF-8 to `sink`; none is empty. `at_start`: nothing comes before the text.
    Status split(std::string_view text, bool at_start, PieceSink& sink) {
      return run(0, text, at_start, sink);
    }

   private:
    Status run(std::size_t stage, std::string_view text, bool at_start, PieceSink& sink);
    const PreTokenizer* pre_tokenizer_;
    std::vector<std::optional<SplitPattern::Matcher>> matchers_;  // by stage
    std::vector<std::string> texts_;                              // by stage: what it made of its text
  };

 private:
  /// What becomes of the matches and of the text between them.
  enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
  struct Split {
    SplitPattern pattern;
    Behavior behavior = Behavior::kIsolated;
    bool invert = false;  // match and gap change roles
  };
  struct Metaspace {
    enum class Prepend { kNever, kFirst, kAlways };
    std::string replacement;  // of a blank
    Prepend prepend = Prepend::kAlways;
  };
  struct PrefixSpace {};
  struct ByteLetters {};
  using Stage = std::variant<Split, Metaspace, PrefixSpace, ByteLetters>;
  friend class Merging;

  Status add(const nlohmann::ordered_json& json, const std::string& path, std::size_t depth);
  Status add_regex(std::string_view pattern, Behavior behavior, bool invert = false);
  static Result<Behavior> behavior_of(const std::string& name, const std::string& path);

  std::vector<Stage> stages_;
  bool ends_in_bytes_ = false;
};

}  // namespace firstlight
