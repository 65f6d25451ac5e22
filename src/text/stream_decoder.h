// Ids to text as they are generated: only whole characters ever leave it.
#pragma once

#include <cstdint>
#include <string>

#include "text/token_start.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace firstlight {

/// All text together is Python's bytes.decode("utf-8", "replace") of token_bytes() of all ids, whatever the
/// grouping of the calls. An id out of range has no bytes.
class StreamDecoder {
 public:
  /// With `skip_special`, ids for which is_skipped() holds have no text. `tokenizer` must outlive this.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = false)
      : tokenizer_(&tokenizer), start_(tokenizer), skip_special_(skip_special) {}

  /// Appends to `out` the characters that this id completes: none, one or several.
  void push(std::int32_t id, std::string& out) {
    if (skip_special_ && tokenizer_->is_skipped(id)) return;
    bytes_.clear();
    start_.append(id, bytes_);
    utf8_.push(bytes_, out);
  }

  /// No more ids will come: a begun character becomes U+FFFD.
  void finish(std::string& out) { utf8_.finish(out); }

 private:
  const Tokenizer* tokenizer_;
  TokenStart start_;
  std::string bytes_;  // of one id
  bool skip_special_;
  Utf8Stream utf8_;
};

}  // namespace firstlight
