#include "text/tiktoken.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/json_limits.h"
#include "base/mapped_file.h"
#include "text/bpe.h"
#include "text/kimi_split.h"
#include "text/special_tokens.h"
#include "text/tiktoken_file.h"
#include "text/tokenizer_config.h"
#include "text/utf8.h"

namespace firstlight {
namespace {

constexpr std::int64_t kDefaultSpecials = 256;  // the number that every released Kimi tokenizer reserves
constexpr std::int64_t kMaxSpecials = 1 << 16;  // each gets a name: a lying vocab_size must not fill memory
constexpr std::size_t kModelLimit = 1U << 30;   // bytes; real files have 3 MB and 5 KB
constexpr std::size_t kConfigLimit = 1U << 24;
constexpr std::string_view kClass = "TikTokenTokenizer";

class Tiktoken final : public Tokenizer {
 public:
  Tiktoken(Vocabulary vocabulary, SpecialTokens specials, SplitRegex split, std::vector<bool> skipped,
           std::optional<std::int32_t> eos)
      : vocabulary_(std::move(vocabulary)),
        specials_(std::move(specials)),
        split_(std::move(split)),
        skipped_(std::move(skipped)),
        eos_(eos) {}

  Status encode(std::string_view text, bool parse_special, std::vector<std::int32_t>& out) const override {
    Worker worker{KimiSplitter(split_), {}, out};
    for (const std::string_view cut : kimi_precut(text)) {
      std::size_t position = 0;
      while (parse_special) {
        const auto special = specials_.find(cut, position);
        if (!special) break;
        FL_TRY(encode_ordinary(cut.substr(position, special->begin - position), worker));
        out.push_back(special->id);
        position = special->begin + special->length;
      }
      FL_TRY(encode_ordinary(cut.substr(position), worker));
    }
    return {};
  }

  std::string_view token_bytes(std::int32_t id) const override {
    if (is_special(id)) return specials_.content(id);
    return id >= 0 && id < vocabulary_.size() ? vocabulary_.bytes(id) : std::string_view();
  }
  std::int32_t vocab_size() const override { return vocabulary_.size() + specials_.size(); }
  bool is_special(std::int32_t id) const override { return specials_.contains(id); }
  bool is_skipped(std::int32_t id) const override {
    return is_special(id) && skipped_[static_cast<std::size_t>(id - vocabulary_.size())];
  }
  std::optional<std::int32_t> special_id(std::string_view text) const override { return specials_.id(text); }
  std::optional<std::int32_t> eos_id() const override { return eos_; }

 private:
  struct Worker {
    KimiSplitter splitter;
    BpeScratch scratch;
    std::vector<std::int32_t>& out;
  };

  /// Splits off bytes that are not UTF-8, which become single-byte tokens: the pattern sees only text.
  Status encode_ordinary(std::string_view text, Worker& worker) const {
    while (!text.empty()) {
      std::size_t valid = 0;
      Utf8Unit unit{Utf8Kind::kCharacter, 0};
      while (valid < text.size()) {
        unit = utf8_unit(text.substr(valid));
        if (unit.kind != Utf8Kind::kCharacter) break;
        valid += unit.length;
      }
      FL_TRY(encode_utf8(text.substr(0, valid), worker));
      text.remove_prefix(valid);
      if (text.empty()) break;
      for (const char c : text.substr(0, unit.length)) {
        worker.out.push_back(vocabulary_.byte_rank(static_cast<std::uint8_t>(c)));
      }
      text.remove_prefix(unit.length);
    }
    return {};
  }

  Status encode_utf8(std::string_view text, Worker& worker) const {
    for (std::size_t position = 0; position < text.size();) {
      FL_ASSIGN(const std::size_t length, worker.splitter.piece(text, position));
      bpe_encode(vocabulary_, text.substr(position, length), worker.scratch, worker.out);
      position += length;
    }
    return {};
  }

  Vocabulary vocabulary_;
  SpecialTokens specials_;
  SplitRegex split_;
  std::vector<bool> skipped_;  // [specials]
  std::optional<std::int32_t> eos_;
};

Result<std::int32_t> special_count(std::int32_t ranks, std::optional<std::int64_t> vocab_size,
                                   const std::string& model) {
  if (!vocab_size) return static_cast<std::int32_t>(kDefaultSpecials);
  if (*vocab_size < ranks || *vocab_size - ranks > kMaxSpecials) {
    return Error{model + ": " + std::to_string(ranks) + " tokens do not go with vocab_size " +
                 std::to_string(*vocab_size) + " (expected 0 to " + std::to_string(kMaxSpecials) +
                 " ids more than tokens)"};
  }
  return static_cast<std::int32_t>(*vocab_size - ranks);
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_tiktoken(const NamedText& model, const NamedText& config_file,
                                                 std::optional<std::int64_t> vocab_size) {
  FL_ASSIGN(const TokenizerConfig config, parse_tokenizer_config(config_file.text, config_file.name));
  if (config.tokenizer_class != kClass) {
    // Other classes use such a file with another split pattern: every id would be subtly wrong.
    return Error{config_file.name + ": tokenizer_class: expected \"" + std::string(kClass) + "\", found " +
                 quote_text(config.tokenizer_class)};
  }
  FL_ASSIGN(Vocabulary vocabulary, parse_tiktoken_file(model.text, model.name));
  const std::int32_t first = vocabulary.size();
  FL_ASSIGN(const std::int32_t count, special_count(first, vocab_size, model.name));

  std::vector<std::string> contents;
  for (std::int32_t id = first; id < first + count; ++id) {
    contents.push_back("<|reserved_token_" + std::to_string(id) + "|>");
  }
  std::vector<bool> skipped(contents.size(), false);
  for (const AddedToken& token : config.added) {
    if (token.id < first || token.id >= first + count) {
      return Error{config_file.name + ": added_tokens_decoder." + std::to_string(token.id) +
                   ": expected an id from " + std::to_string(first) + " to " +
                   std::to_string(first + count - 1)};
    }
    const auto index = static_cast<std::size_t>(token.id - first);
    contents[index] = token.content;
    skipped[index] = token.special;
  }
  auto specials = SpecialTokens::build(first, std::move(contents));
  if (!specials) return Error{config_file.name + ": added_tokens_decoder: " + specials.error().message};

  for (const std::string& name : config.named) {
    // A name without an id cannot appear in a stream; only for eos is that worth an error (below).
    if (const auto id = specials->id(name)) skipped[static_cast<std::size_t>(*id - first)] = true;
  }
  std::optional<std::int32_t> eos;
  if (config.eos_token) {
    eos = specials->id(*config.eos_token);
    if (!eos) {
      return Error{config_file.name + ": eos_token: " + quote_text(*config.eos_token) +
                   " is not a special token"};
    }
  }
  FL_ASSIGN(SplitRegex split, SplitRegex::compile(kimi_split_pattern()));
  return std::unique_ptr<Tokenizer>(std::make_unique<Tiktoken>(std::move(vocabulary), std::move(*specials),
                                                               std::move(split), std::move(skipped), eos));
}

Result<std::unique_ptr<Tokenizer>> load_tiktoken(const std::filesystem::path& model,
                                                 const std::filesystem::path& config,
                                                 std::optional<std::int64_t> vocab_size) {
  FL_ASSIGN(const std::string config_text, read_file(config.string(), kConfigLimit));
  FL_ASSIGN(const std::string model_text, read_file(model.string(), kModelLimit));
  return make_tiktoken({model_text, model.string()}, {config_text, config.string()}, vocab_size);
}

}  // namespace firstlight
