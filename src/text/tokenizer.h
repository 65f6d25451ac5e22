// What the engine knows of a tokenizer: text to ids, ids to bytes, and which ids are special. One file a
// kind implements it; load_tokenizer() chooses by what a checkpoint folder holds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace firstlight {

/// Immutable after loading; all members may be called from several threads at once.
class Tokenizer {
 public:
  Tokenizer() = default;
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// Appends the ids of `text` to `out`; adds neither BOS nor EOS. With an empty `out` it is the start of a
  /// text, which some kinds treat apart. With `parse_special`, the text of a special token becomes that
  /// token; without it, it is ordinary text and no input yields a special id. Bytes that are not UTF-8 are
  /// encoded one by one. The ids' bytes are the text's bytes, unless the tokenizer's own rules change the
  /// text first (normal forms) or its vocabulary cannot express it (an unknown token).
  virtual Status encode(std::string_view text, bool parse_special, std::vector<std::int32_t>& out) const = 0;

  /// The token's bytes, which need not be whole characters; a special token's text. Empty for an id out
  /// of range. Valid as long as the tokenizer.
  [[nodiscard]] virtual std::string_view token_bytes(std::int32_t id) const = 0;

  /// Ids are [0, vocab_size).
  [[nodiscard]] virtual std::int32_t vocab_size() const = 0;

  /// Whether the id stands beside the ordinary vocabulary: only parse_special or the caller can make it.
  [[nodiscard]] virtual bool is_special(std::int32_t id) const = 0;

  /// Whether "skip special tokens" decoding leaves the id out. Some special tokens stay in the text
  /// (declared `"special": false`) because a parser of the output needs them.
  [[nodiscard]] virtual bool is_skipped(std::int32_t id) const = 0;

  [[nodiscard]] virtual std::optional<std::int32_t> special_id(std::string_view text) const = 0;

  /// The token's bytes where it is the first of a text: some kinds mark the start of a word by a blank, which
  /// the first word of a text does not show.
  [[nodiscard]] virtual std::string first_bytes(std::int32_t id) const {
    return std::string(token_bytes(id));
  }

  /// How many blanks at most the start of a decoded text loses, after first_bytes().
  [[nodiscard]] virtual std::size_t leading_blanks() const { return 0; }

  /// The ids that this kind puts before a text which stands for itself (BOS, or none). A chat template writes
  /// its own; encode() never adds them.
  [[nodiscard]] virtual std::vector<std::int32_t> prefix() const { return {}; }

  /// The token that tokenizer_config.json names as eos_token; a model may have more ids that stop it.
  [[nodiscard]] virtual std::optional<std::int32_t> eos_id() const = 0;
};

/// Loads the tokenizer of a checkpoint folder. `vocab_size` is that of config.json where the caller has
/// it: it decides how many special ids follow the ordinary ones.
Result<std::unique_ptr<Tokenizer>> load_tokenizer(const std::filesystem::path& folder,
                                                  std::optional<std::int64_t> vocab_size = std::nullopt);

/// The bytes of all ids as a text from its start.
std::string token_bytes(const Tokenizer& tokenizer, std::span<const std::int32_t> ids);

}  // namespace firstlight
