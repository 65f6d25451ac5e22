// The "normalizer" of tokenizer.json: what is done to a text before it is cut.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "text/normal_form.h"
#include "text/split_pattern.h"

namespace firstlight {

/// NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Prepend, Replace, ByteLevel, and Sequences of them.
class Normalizer {
 public:
  /// `json` may be null: then nothing is done. `path` ("tokenizer.json: normalizer") begins messages.
  static Result<Normalizer> create(const nlohmann::ordered_json& json, const std::string& path);

  [[nodiscard]] bool is_identity() const { return steps_.empty(); }

  /// Replaces `text`, which must be valid UTF-8. Fails if a pattern exceeds its limits or the text grows
  /// beyond all measure (a few replacements in a row could double it each time).
  Status apply(std::string& text) const;

 private:
  struct Form {
    NormalForm form;
  };
  struct Lowercase {};
  struct StripAccents {};
  struct Strip {
    bool left;
    bool right;
  };
  struct Prepend {
    std::string text;
  };
  struct Replace {
    SplitPattern pattern;
    std::string content;
  };
  struct ByteLetters {};
  using Step = std::variant<Form, Lowercase, StripAccents, Strip, Prepend, Replace, ByteLetters>;

  Status add(const nlohmann::ordered_json& json, const std::string& path, std::size_t depth);

  std::vector<Step> steps_;
};

/// The field "pattern": {"String": …} or {"Regex": …}.
Result<SplitPattern> read_pattern(const nlohmann::ordered_json& json, const std::string& path);

/// Appends `text` with every match replaced. Fails when `out` gets longer than `limit` bytes.
Status append_replaced(const SplitPattern& pattern, std::string_view content, std::string_view text,
                       std::size_t limit, std::string& out);

}  // namespace firstlight
