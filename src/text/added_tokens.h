// The tokens that stand beside a tokenizer.json's model, and where they are in a text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/normalizer.h"
#include "text/text_set.h"
#include "text/tokenizer_config.h"

namespace firstlight {

/// Immutable once built.
class AddedTokens {
 public:
  AddedTokens() = default;
  /// Fails if a token's normalised text cannot be had.
  static Result<AddedTokens> create(std::vector<AddedToken> tokens, const Normalizer& normalizer);

  [[nodiscard]] const std::vector<AddedToken>& tokens() const { return tokens_; }

  /// Tokens are looked for twice: those that are not "normalized" in the text as it is, the others in what
  /// the normalizer makes of the stretches between.
  enum class Pass { kRaw, kNormalized };
  [[nodiscard]] bool any(Pass pass) const { return set(pass).size() != 0; }

  /// Calls `each(begin, end, token)` for the tokens in `text`, with the white space they take in, and for
  /// what lies between (token null), in order. `each` returns a Status. `text` may hold any bytes.
  template <class Each>
  Status for_each(Pass pass, std::string_view text, const Each& each) const {
    std::size_t done = 0;
    for (std::size_t from = 0;;) {
      const auto match = set(pass).find(text, from);
      if (!match) break;
      std::size_t begin = match->begin;
      std::size_t end = begin + match->length;
      from = end;
      const AddedToken& token = tokens_[owners(pass)[match->index]];
      if (!widen(token, text, done, begin, end)) continue;
      // A token of white space inside what the one before it took in counts all the same, as it does
      // elsewhere.
      if (begin > done) FL_TRY(each(done, begin, nullptr));
      FL_TRY(each(begin, end, &token));
      done = end;
    }
    if (done != text.size()) FL_TRY(each(done, text.size(), nullptr));
    return {};
  }

 private:
  [[nodiscard]] const TextSet& set(Pass pass) const { return pass == Pass::kRaw ? raw_ : normalized_; }
  [[nodiscard]] const std::vector<std::uint32_t>& owners(Pass pass) const {
    return pass == Pass::kRaw ? raw_owners_ : normalized_owners_;
  }
  /// Takes in white space left and right where the token wants it; false if the token must stand alone and
  /// does not.
  static bool widen(const AddedToken& token, std::string_view text, std::size_t done, std::size_t& begin,
                    std::size_t& end);

  std::vector<AddedToken> tokens_;
  TextSet raw_;
  TextSet normalized_;
  std::vector<std::uint32_t> raw_owners_;  // by index in the set: index in tokens_
  std::vector<std::uint32_t> normalized_owners_;
};

}  // namespace firstlight
