// Where a text that no pre-tokenizer cuts may be cut all the same. In vocabularies that mark the start of a
// word by U+2581, hardly any token has this mark behind another character; between such two characters
// nothing is ever joined, so the parts can be encoded one by one.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "text/tokenizer_json_file.h"
#include "text/vocabulary.h"

namespace firstlight {

class WordCuts {
 public:
  /// Cuts nothing.
  WordCuts() = default;

  /// `stand_ins`: by id, tokens that stand for other characters than they are spelled with. Where one of
  /// these can be joined to another token, nothing is cut.
  WordCuts(const TokenizerJsonFile& file, const Vocabulary& vocabulary, const std::vector<bool>& stand_ins);

  /// The length of the part at the start of a piece that can be encoded by itself.
  [[nodiscard]] std::size_t first_part(std::string_view piece) const;

 private:
  bool cuts_ = false;
  std::vector<char32_t> joined_;  // sorted: characters that some join puts before the mark
};

}  // namespace firstlight
