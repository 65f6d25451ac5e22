// A prompt between text and ids: which of its text is structure, where a special token counts, and which is
// what somebody said, where it is only text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/special_tokens.h"
#include "text/tokenizer.h"

namespace firstlight {

struct PromptPart {
  std::string text;
  bool literal = false;  // never becomes a special token, neither alone nor with its neighbours
};

struct Prompt {
  std::vector<PromptPart> parts;
  bool separate = false;  // each part is tokenised on its own; otherwise all of them as one text

  [[nodiscard]] std::string text() const;
};

/// Tokenises prompts. Holds the tokenizer by reference; any thread may call encode().
class PromptEncoder {
 public:
  explicit PromptEncoder(const Tokenizer& tokenizer);

  /// Appends the ids. In a prompt of separate parts one that is not literal begins with a special token.
  /// Where no literal part reads like a special token, the ids of a prompt that is one text are those of
  /// `Tokenizer::encode(text, parse_special = true)`.
  Status encode(const Prompt& prompt, std::vector<std::int32_t>& out) const;

  /// The special tokens that a conversation must not forge under a template, in order of their ids: those
  /// that are declared control tokens or are written as "<|…|>", and those that the template itself writes.
  /// Others (Gemma's "<table>") are ordinary content that happens to have an id of its own.
  [[nodiscard]] std::vector<std::string> control_texts(std::string_view template_text) const;

 private:
  [[nodiscard]] Status encode_joined(const Prompt& prompt, std::vector<std::int32_t>& out) const;

  const Tokenizer* tokenizer_;
  std::vector<std::int32_t> ids_;  // of the texts in specials_, whose own ids count from 0
  SpecialTokens specials_;
};

}  // namespace firstlight
