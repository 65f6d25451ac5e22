#include "text/tokenizer_json.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_limits.h"
#include "base/mapped_file.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/byte_letters.h"
#include "text/merge_table.h"
#include "text/normalizer.h"
#include "text/post_processor.h"
#include "text/pre_tokenizer.h"
#include "text/symbols.h"
#include "text/text_set.h"
#include "text/token_decoder.h"
#include "text/tokenizer_config.h"
#include "text/tokenizer_json_file.h"
#include "text/unicode.h"
#include "text/utf8.h"
#include "text/vocabulary.h"
#include "text/word_cuts.h"

namespace firstlight {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr std::size_t kFileLimit = std::size_t{1} << 30;  // bytes; real files have up to 35 MB and 1 MB
constexpr std::size_t kConfigLimit = std::size_t{1} << 24;
constexpr std::size_t kMaxText = std::size_t{1} << 30;

class TokenizerJson final : public Tokenizer {
 public:
  struct Parts {
    Normalizer normalizer;
    PreTokenizer pre_tokenizer;
    TokenDecoder decoder;
    AddedTokens added;
    Ids prefix;
    std::optional<std::int32_t> eos;
    std::vector<std::string> named;  // special by role
  };

  static Result<std::unique_ptr<Tokenizer>> create(TokenizerJsonFile file, Parts parts,
                                                   const std::string& name);

  Status encode(std::string_view text, bool parse_special, Ids& out) const override;

  std::string_view token_bytes(std::int32_t id) const override {
    if (id < 0 || id >= vocab_size()) return {};
    const Vocabulary::Span& s = texts_[static_cast<std::size_t>(id)];
    return std::string_view(text_blob_).substr(s.offset, s.length);
  }
  std::int32_t vocab_size() const override { return static_cast<std::int32_t>(texts_.size()); }
  bool is_special(std::int32_t id) const override { return has(kinds_, id, kSpecial); }
  bool is_skipped(std::int32_t id) const override { return has(kinds_, id, kSkipped); }
  std::optional<std::int32_t> special_id(std::string_view text) const override {
    const auto index = added_texts_.index_of(text);
    if (!index) return std::nullopt;
    return parts_.added.tokens()[*index].id;
  }
  std::optional<std::int32_t> eos_id() const override { return parts_.eos; }
  std::string first_bytes(std::int32_t id) const override {
    if (!parts_.decoder.first_differs() || id < 0 || id >= vocab_size()) return std::string(token_bytes(id));
    const AddedToken* added = added_token(id);
    if (added == nullptr && id >= static_cast<std::int32_t>(file_.spans.size())) return {};
    auto bytes =
        parts_.decoder.first_bytes(added != nullptr ? added->content : file_.token(id), added != nullptr);
    return bytes ? std::move(*bytes) : std::string(token_bytes(id));
  }
  std::size_t leading_blanks() const override { return parts_.decoder.leading_blanks(); }
  Ids prefix() const override { return parts_.prefix; }

 private:
  class Worker;
  enum Kind : std::uint8_t { kSpecial = 1, kSkipped = 2, kNotFromText = 4 };
  enum Whole : std::uint8_t { kUnknown, kReached, kNotReached };

  static bool has(const std::vector<std::uint8_t>& kinds, std::int32_t id, Kind kind) {
    return id >= 0 && id < static_cast<std::int32_t>(kinds.size()) &&
           (kinds[static_cast<std::size_t>(id)] & kind) != 0;
  }
  [[nodiscard]] const AddedToken* added_token(std::int32_t id) const;
  void set_kinds();
  Result<Vocabulary> vocabulary_of_pieces() const;
  void set_merges();
  Status set_texts();

  TokenizerJsonFile file_;  // merges are empty after loading
  Parts parts_;
  TextSet added_texts_;
  Vocabulary vocabulary_;  // in the spelling of the pieces
  MergeTable merges_;
  SymbolMaker symbols_;
  WordCuts cuts_;
  std::string text_blob_;
  std::vector<Vocabulary::Span> texts_;  // by id, in text_blob_: what token_bytes() says
  std::vector<std::uint8_t> kinds_;      // by id: bits of Kind
  /// By id: whether a piece that is this token's text becomes this token. Found out when first needed; all
  /// threads find the same.
  mutable std::vector<std::atomic<std::uint8_t>> whole_;
};

/// What one call of encode() works with.
class TokenizerJson::Worker final : public PieceSink {
 public:
  Worker(const TokenizerJson& tokenizer, bool parse_special, Ids& out)
      : t_(&tokenizer),
        parse_special_(parse_special),
        splitter_(tokenizer.parts_.pre_tokenizer),
        merger_(tokenizer.merges_),
        at_start_(out.empty()),
        out_(&out) {}

  Status encode(std::string_view text) {
    if (!parse_special_ || !t_->parts_.added.any(AddedTokens::Pass::kRaw)) return stretch(text, at_start_);
    return t_->parts_.added.for_each(
        AddedTokens::Pass::kRaw, text,
        [&](std::size_t begin, std::size_t end, const AddedToken* token) -> Status {
          if (token == nullptr) return stretch(text.substr(begin, end - begin), at_start_ && begin == 0);
          out_->push_back(token->id);
          return {};
        });
  }

  Status piece(std::string_view piece) override {
    while (!piece.empty()) {
      const std::size_t length = t_->cuts_.first_part(piece);
      FL_TRY(word(piece.substr(0, length)));
      piece.remove_prefix(length);
    }
    return {};
  }

 private:
  /// Between added tokens: bytes that are not UTF-8 are split off, the rest is normalised.
  Status stretch(std::string_view text, bool at_start) {
    while (!text.empty()) {
      const std::size_t valid = valid_utf8_length(text);
      if (valid != 0) FL_TRY(normalize(text.substr(0, valid), at_start));
      at_start = false;
      text.remove_prefix(valid);
      if (text.empty()) break;
      FL_TRY(t_->symbols_.add_byte(static_cast<std::uint8_t>(text[0]), *out_));
      text.remove_prefix(1);
    }
    return {};
  }

  Status normalize(std::string_view text, bool at_start) {
    if (!t_->parts_.normalizer.is_identity()) {
      normalized_ = text;
      FL_TRY(t_->parts_.normalizer.apply(normalized_));
      text = normalized_;
    }
    if (!parse_special_ || !t_->parts_.added.any(AddedTokens::Pass::kNormalized)) {
      return splitter_.split(text, at_start, *this);
    }
    return t_->parts_.added.for_each(
        AddedTokens::Pass::kNormalized, text,
        [&](std::size_t begin, std::size_t end, const AddedToken* token) -> Status {
          if (token == nullptr)
            return splitter_.split(text.substr(begin, end - begin), at_start && begin == 0, *this);
          out_->push_back(token->id);
          return {};
        });
  }

  Status word(std::string_view word) {
    std::int32_t whole = t_->vocabulary_.find(word);
    if (whole != Vocabulary::kNone && has(t_->kinds_, whole, kNotFromText)) whole = Vocabulary::kNone;
    if (whole != Vocabulary::kNone) {
      if (t_->file_.ignore_merges || t_->whole_[static_cast<std::size_t>(whole)] == kReached) {
        out_->push_back(whole);
        return {};
      }
    }
    FL_TRY(t_->symbols_.make(word, ids_));
    merger_.merge(ids_);
    if (whole != Vocabulary::kNone) {
      t_->whole_[static_cast<std::size_t>(whole)] =
          ids_.size() == 1 && ids_[0] == whole ? kReached : kNotReached;
    }
    out_->insert(out_->end(), ids_.begin(), ids_.end());
    return {};
  }

  const TokenizerJson* t_;
  bool parse_special_;
  PreTokenizer::Splitter splitter_;
  BpeMerger merger_;
  std::string normalized_;
  Ids ids_;
  bool at_start_;
  Ids* out_;
};

Status TokenizerJson::encode(std::string_view text, bool parse_special, Ids& out) const {
  if (text.size() > kMaxText) return Error{"a text has more than 1 GiB"};
  return Worker(*this, parse_special, out).encode(text);
}

const AddedToken* TokenizerJson::added_token(std::int32_t id) const {
  const auto& tokens = parts_.added.tokens();
  const auto found = std::lower_bound(tokens.begin(), tokens.end(), id,
                                      [](const AddedToken& token, std::int32_t i) { return token.id < i; });
  return found != tokens.end() && found->id == id ? &*found : nullptr;
}

void TokenizerJson::set_kinds() {
  std::size_t size = file_.spans.size();
  for (const AddedToken& token : parts_.added.tokens())
    size = std::max(size, static_cast<std::size_t>(token.id) + 1);
  kinds_.resize(size);
  for (const AddedToken& token : parts_.added.tokens()) {
    const auto id = static_cast<std::size_t>(token.id);
    const bool in_model = id < file_.spans.size() && file_.spans[id].length != 0;
    if (token.special || !in_model) kinds_[id] |= kSpecial;
    if (token.special) kinds_[id] |= kSkipped | kNotFromText;
  }
}

/// The vocabulary as pieces spell it: in letters as the file does, or in bytes.
Result<Vocabulary> TokenizerJson::vocabulary_of_pieces() const {
  if (!parts_.pre_tokenizer.ends_in_bytes()) return Vocabulary::build(file_.blob, file_.spans);
  std::string blob;
  std::vector<Vocabulary::Span> spans(file_.spans.size());
  for (std::size_t id = 0; id < spans.size(); ++id) {
    // A token with other letters cannot come out of text; only decoding knows it.
    const auto bytes = bytes_of_letters(file_.token(static_cast<std::int32_t>(id)));
    if (!bytes) continue;
    spans[id] = {static_cast<std::uint32_t>(blob.size()), static_cast<std::uint32_t>(bytes->size())};
    blob += *bytes;
  }
  return Vocabulary::build(std::move(blob), std::move(spans));
}

void TokenizerJson::set_merges() {
  // Text alone must not become a special token, whatever the file says.
  std::erase_if(file_.merges,
                [&](const MergeTable::Merge& m) { return has(kinds_, m.result, kNotFromText); });
  merges_ = MergeTable::by_position(file_.merges);
  const bool may_cut = !parts_.pre_tokenizer.ends_in_bytes() && !file_.ignore_merges &&
                       file_.continuing_subword_prefix.empty() && file_.end_of_word_suffix.empty();
  if (may_cut) cuts_ = WordCuts(file_, vocabulary_, symbols_.stand_ins());
  file_.merges = {};
}

Status TokenizerJson::set_texts() {
  texts_.resize(kinds_.size());
  for (std::size_t id = 0; id < texts_.size(); ++id) {
    const AddedToken* added = added_token(static_cast<std::int32_t>(id));
    if (added == nullptr && (id >= file_.spans.size() || file_.spans[id].length == 0)) continue;
    const std::string_view token =
        added != nullptr ? added->content : file_.token(static_cast<std::int32_t>(id));
    FL_ASSIGN(const std::string bytes, parts_.decoder.bytes(token, added != nullptr));
    texts_[id] = {static_cast<std::uint32_t>(text_blob_.size()), static_cast<std::uint32_t>(bytes.size())};
    text_blob_ += bytes;
  }
  return {};
}

Result<std::unique_ptr<Tokenizer>> TokenizerJson::create(TokenizerJsonFile file, Parts parts,
                                                         const std::string& name) {
  auto t = std::make_unique<TokenizerJson>();
  t->file_ = std::move(file);
  t->parts_ = std::move(parts);
  t->set_kinds();
  std::vector<std::string> contents;
  for (const AddedToken& token : t->parts_.added.tokens()) contents.push_back(token.content);
  t->added_texts_ = TextSet(std::move(contents));
  for (const std::string& text : t->parts_.named) {
    if (const auto id = t->special_id(text)) t->kinds_[static_cast<std::size_t>(*id)] |= kSkipped;
  }
  FL_ASSIGN(t->vocabulary_, t->vocabulary_of_pieces());
  auto symbols = SymbolMaker::create(t->file_, t->vocabulary_, t->parts_.pre_tokenizer.ends_in_bytes());
  if (!symbols) return Error{name + ": " + symbols.error().message};
  t->symbols_ = std::move(*symbols);
  t->set_merges();
  if (const Status status = t->set_texts(); !status)
    return Error{name + ": decoder: " + status.error().message};
  for (const std::int32_t id : t->parts_.prefix) {
    if (id >= t->vocab_size())
      return Error{name + ": post_processor: there is no token " + std::to_string(id)};
  }
  t->whole_ = std::vector<std::atomic<std::uint8_t>>(t->file_.spans.size());
  return std::unique_ptr<Tokenizer>(std::move(t));
}

/// Checks the added tokens against each other and the vocabulary, and sorts them by id.
Status check_added(const TokenizerJsonFile& file, const Vocabulary& texts, const std::string& name,
                   std::vector<AddedToken>& added) {
  std::sort(added.begin(), added.end(), [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  std::vector<std::string> contents;
  for (std::size_t i = 0; i < added.size(); ++i) {
    const AddedToken& token = added[i];
    const auto fail = [&](const std::string& what) {
      return Error{name + ": the added token " + quote_text(token.content, 80) + " (id " +
                   std::to_string(token.id) + ") " + what};
    };
    if (i != 0 && added[i - 1].id == token.id)
      return fail("has the id of " + quote_text(added[i - 1].content, 80));
    const std::int32_t in_model = texts.find(token.content);
    if (in_model != Vocabulary::kNone && in_model != token.id) {
      return fail("has the id " + std::to_string(in_model) + " in model.vocab");
    }
    const auto id = static_cast<std::size_t>(token.id);
    if (in_model == Vocabulary::kNone && id < file.spans.size() && file.spans[id].length != 0) {
      return fail("has the id of " + quote_text(file.token(token.id), 80) + " in model.vocab");
    }
    contents.push_back(token.content);
  }
  if (const auto twice = TextSet(std::move(contents)).duplicate()) {
    return Error{name + ": ids " + std::to_string(added[twice->first].id) + " and " +
                 std::to_string(added[twice->second].id) + " are the same added token"};
  }
  return {};
}

/// What added_tokens_decoder says replaces what tokenizer.json says of the same token.
Status add_from_config(const std::vector<AddedToken>& more, const std::string& name,
                       std::vector<AddedToken>& added) {
  const std::size_t own = added.size();  // these are sorted by id
  for (const AddedToken& token : more) {
    if (token.id > MergeTable::kLargestId) {
      return Error{name + ": added_tokens_decoder." + std::to_string(token.id) +
                   ": expected an id of at most " + std::to_string(MergeTable::kLargestId)};
    }
    const auto end = added.begin() + static_cast<std::ptrdiff_t>(own);
    const auto same = std::lower_bound(added.begin(), end, token.id,
                                       [](const AddedToken& a, std::int32_t id) { return a.id < id; });
    if (same == end || same->id != token.id) {
      added.push_back(token);
    } else if (same->content == token.content) {
      *same = token;
    } else {
      return Error{name + ": added_tokens_decoder." + std::to_string(token.id) + ": is " +
                   quote_text(token.content, 80) + ", but " + quote_text(same->content, 80) +
                   " in tokenizer.json"};
    }
  }
  return {};
}

/// The id of a token that the config names.
Result<std::int32_t> named_id(const std::string& text, const char* role, const std::vector<AddedToken>& added,
                              const Vocabulary& texts, const std::string& name) {
  for (const AddedToken& token : added) {
    if (token.content == text) return token.id;
  }
  const std::int32_t id = texts.find(text);
  if (id != Vocabulary::kNone) return id;
  return Error{name + ": " + role + ": there is no token " + quote_text(text, 80)};
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_tokenizer_json(const NamedText& file_text,
                                                       const std::optional<NamedText>& config_text) {
  const std::string& name = file_text.name;
  FL_ASSIGN(TokenizerJsonFile file, parse_tokenizer_json(file_text.text, name));
  TokenizerConfig config;
  if (config_text) {
    FL_ASSIGN(config, parse_tokenizer_config(config_text->text, config_text->name));
  }
  TokenizerJson::Parts parts;
  FL_ASSIGN(parts.normalizer, Normalizer::create(file.normalizer, name + ": normalizer"));
  FL_ASSIGN(parts.pre_tokenizer, PreTokenizer::create(file.pre_tokenizer, name + ": pre_tokenizer"));
  FL_ASSIGN(parts.decoder, TokenDecoder::create(file.decoder, name + ": decoder"));
  FL_ASSIGN(parts.prefix, ids_before_text(file.post_processor, name + ": post_processor"));

  std::vector<AddedToken> added = std::move(file.added);
  FL_ASSIGN(const Vocabulary texts, Vocabulary::build(file.blob, file.spans));
  FL_TRY(check_added(file, texts, name, added));
  if (config.added) {
    FL_TRY(add_from_config(*config.added, config_text->name, added));
    FL_TRY(check_added(file, texts, config_text->name + " with tokenizer.json", added));
  }
  if (config.eos_token) {
    FL_ASSIGN(parts.eos, named_id(*config.eos_token, "eos_token", added, texts, config_text->name));
  }
  if (config.add_bos_token) {
    parts.prefix.clear();
    if (*config.add_bos_token && config.bos_token) {
      FL_ASSIGN(const std::int32_t bos,
                named_id(*config.bos_token, "bos_token", added, texts, config_text->name));
      parts.prefix.push_back(bos);
    }
  }
  parts.named = std::move(config.named);
  auto matched = AddedTokens::create(std::move(added), parts.normalizer);
  if (!matched) return Error{name + ": " + matched.error().message};
  parts.added = std::move(*matched);
  return TokenizerJson::create(std::move(file), std::move(parts), name);
}

Result<std::unique_ptr<Tokenizer>> load_tokenizer_json(const std::filesystem::path& file,
                                                       const std::filesystem::path& config) {
  FL_ASSIGN(const std::string text, read_file(file.string(), kFileLimit));
  if (!name_is_taken(config.string())) return make_tokenizer_json({text, file.string()});
  FL_ASSIGN(const std::string config_text, read_file(config.string(), kConfigLimit));
  return make_tokenizer_json({text, file.string()}, NamedText{config_text, config.string()});
}

}  // namespace firstlight
