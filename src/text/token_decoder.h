// The "decoder" of tokenizer.json: from tokens back to text.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "text/json_fields.h"
#include "text/split_pattern.h"

namespace firstlight {

/// ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace, and Sequences of them, as long as each token has
/// its bytes whatever stands around it: only the very start of a text may be treated in another way. Null
/// joins the tokens with blanks.
class TokenDecoder {
 public:
  /// `path` ("tokenizer.json: decoder") begins messages.
  static Result<TokenDecoder> create(const nlohmann::ordered_json& json, const std::string& path);

  /// The bytes of a token. `added`: it is one of the added tokens, which are no letters of bytes.
  Result<std::string> bytes(std::string_view token, bool added) const { return decode(token, added, false); }

  /// Its bytes where it is the first of a text, before leading_blanks() are taken off.
  Result<std::string> first_bytes(std::string_view token, bool added) const {
    return decode(token, added, true);
  }

  /// Whether bytes() and first_bytes() can differ.
  [[nodiscard]] bool first_differs() const { return first_differs_; }

  /// How many blanks at most the start of a whole text loses.
  [[nodiscard]] std::size_t leading_blanks() const { return leading_blanks_; }

 private:
  struct ByteLevel {};
  struct ByteFallback {};
  struct Replace {
    SplitPattern pattern;
    std::string content;
  };
  struct Strip {
    std::string content;
    std::size_t start;
    std::size_t stop;
  };
  struct Metaspace {
    std::string replacement;
    bool drop_first;  // at the start of a text the replacement is nothing, not a blank
  };
  struct PrefixBlank {};
  using Step = std::variant<ByteLevel, ByteFallback, Replace, Strip, Metaspace, PrefixBlank>;

  Status add(const nlohmann::ordered_json& json, const std::string& path, std::size_t depth);
  Status add_step(JsonFields& fields, const std::string& type);
  Result<std::string> decode(std::string_view token, bool added, bool first) const;

  std::vector<Step> steps_;
  bool fused_ = false;  // a Fuse was read: what follows sees the whole text
  bool first_differs_ = false;
  std::size_t leading_blanks_ = 0;
};

/// The byte that "<0x0A>" stands for, -1 if the token has not this form.
int byte_of_fallback(std::string_view token);

}  // namespace firstlight
