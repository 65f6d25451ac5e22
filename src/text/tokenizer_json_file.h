// The file tokenizer.json, read event by event: a tree of a large one would take a hundred times the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/merge_table.h"
#include "text/tokenizer_config.h"
#include "text/vocabulary.h"

namespace firstlight {

/// What the file says, checked in its form: every field is known and has its type, ids are unique and from 0
/// to MergeTable::kLargestId, every merge names tokens of the vocabulary.
struct TokenizerJsonFile {
  /// The small parts, null where absent. They are read by Normalizer, PreTokenizer, ….
  nlohmann::ordered_json normalizer;
  nlohmann::ordered_json pre_tokenizer;
  nlohmann::ordered_json post_processor;
  nlohmann::ordered_json decoder;

  std::vector<AddedToken> added;

  // "model", of type BPE.
  std::optional<std::string> unk_token;
  std::string continuing_subword_prefix;
  std::string end_of_word_suffix;
  bool fuse_unk = false;
  bool byte_fallback = false;
  bool ignore_merges = false;
  std::string blob;                     // the tokens' texts, valid UTF-8
  std::vector<Vocabulary::Span> spans;  // by id, in `blob`; empty for an id without token
  std::vector<MergeTable::Merge> merges;

  [[nodiscard]] std::string_view token(std::int32_t id) const {
    const Vocabulary::Span& s = spans[static_cast<std::size_t>(id)];
    return std::string_view(blob).substr(s.offset, s.length);
  }
};

/// `name` is the file's name for messages.
Result<TokenizerJsonFile> parse_tokenizer_json(std::string_view text, const std::string& name);

}  // namespace firstlight
