// The symbols that byte-pair encoding starts from: the tokens of a piece's characters or bytes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer_json_file.h"
#include "text/vocabulary.h"

namespace firstlight {

class SymbolMaker {
 public:
  /// Only to be assigned to.
  SymbolMaker() = default;

  /// `bytes`: symbols are bytes, and `vocabulary` holds tokens as bytes; else they are characters. Fails if
  /// unk_token is not in the vocabulary. `vocabulary` must outlive this.
  static Result<SymbolMaker> create(const TokenizerJsonFile& file, const Vocabulary& vocabulary, bool bytes);

  /// Replaces `symbols` by those of `piece` (valid UTF-8). Fails for what the vocabulary cannot express.
  Status make(std::string_view piece, std::vector<std::int32_t>& symbols) const;

  /// Appends the token of one byte that is part of no character.
  Status add_byte(std::uint8_t byte, std::vector<std::int32_t>& symbols) const;

  /// By id: whether the token stands for characters that its text does not spell (unknown ones, bytes).
  [[nodiscard]] std::vector<bool> stand_ins() const;

 private:
  struct Unknown {
    bool held = false;  // an unknown token that is yet to be appended
  };
  Status add_character(std::string_view character, Unknown& unknown,
                       std::vector<std::int32_t>& symbols) const;

  const Vocabulary* vocabulary_ = nullptr;
  bool bytes_ = false;
  bool fuse_unknown_ = false;
  std::optional<std::int32_t> unknown_;
  std::string prefix_;                        // of all characters but a piece's first
  std::string suffix_;                        // of a piece's last character
  std::vector<std::int32_t> characters_;      // by code point up to U+FFFF, where no prefix is in the way
  std::array<std::int32_t, 256> fallback_{};  // the tokens "<0x00>" … "<0xFF>"
};

}  // namespace firstlight
