// The bytes of ids as they come, with what the start of a text loses.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace firstlight {

class TokenStart {
 public:
  /// `tokenizer` must outlive this.
  explicit TokenStart(const Tokenizer& tokenizer)
      : tokenizer_(&tokenizer), blanks_(tokenizer.leading_blanks()) {}

  /// Appends the bytes of the next id of the text.
  void append(std::int32_t id, std::string& out) {
    if (!first_ && blanks_ == 0) {
      out += tokenizer_->token_bytes(id);
      return;
    }
    const std::string bytes = first_ ? tokenizer_->first_bytes(id) : std::string(tokenizer_->token_bytes(id));
    first_ = false;
    const std::size_t lost = std::min({blanks_, bytes.find_first_not_of(' '), bytes.size()});
    blanks_ = lost == bytes.size() ? blanks_ - lost : 0;
    out += std::string_view(bytes).substr(lost);
  }

 private:
  const Tokenizer* tokenizer_;
  bool first_ = true;
  std::size_t blanks_;  // that may still be lost
};

}  // namespace firstlight
