#include "text/tiktoken.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/json_limits.h"
#include "base/mapped_file.h"
#include "text/bpe.h"
#include "text/kimi_split.h"
#include "text/merge_table.h"
#include "text/special_tokens.h"
#include "text/split_pattern.h"
#include "text/tiktoken_file.h"
#include "text/tokenizer_config.h"
#include "text/utf8.h"

namespace firstlight {
namespace {

constexpr std::int64_t kDefaultSpecials = 256;  // the number that every released Kimi tokenizer reserves
constexpr std::int64_t kMaxSpecials = 1 << 16;  // each gets a name: a lying vocab_size must not fill memory
constexpr std::size_t kModelLimit = 1U << 30;   // bytes; real files have 3 MB and 5 KB
constexpr std::size_t kConfigLimit = 1U << 24;
constexpr std::size_t kMaxText = 1U << 30;
constexpr std::string_view kClass = "TikTokenTokenizer";

/// Any two tokens that together are a third one can be joined to it.
MergeTable joins_of(const Vocabulary& vocabulary) {
  return MergeTable::by_result([&](const auto& take) {
    for (std::int32_t id = 0; id < vocabulary.size(); ++id) {
      const std::string_view token = vocabulary.bytes(id);
      for (std::size_t cut = 1; cut < token.size(); ++cut) {
        const std::int32_t left = vocabulary.find(token.substr(0, cut));
        if (left == Vocabulary::kNone) continue;
        const std::int32_t right = vocabulary.find(token.substr(cut));
        if (right != Vocabulary::kNone) take(MergeTable::Merge{left, right, id});
      }
    }
  });
}

class Tiktoken final : public Tokenizer {
 public:
  Tiktoken(Vocabulary vocabulary, SpecialTokens specials, SplitPattern split, std::vector<bool> skipped,
           std::optional<std::int32_t> eos)
      : vocabulary_(std::move(vocabulary)),
        merges_(joins_of(vocabulary_)),
        specials_(std::move(specials)),
        split_(std::move(split)),
        skipped_(std::move(skipped)),
        eos_(eos) {}

  Status encode(std::string_view text, bool parse_special, std::vector<std::int32_t>& out) const override {
    if (text.size() > kMaxText) return Error{"a text has more than 1 GiB"};
    Worker worker{SplitPattern::Matcher(split_), BpeMerger(merges_), {}, out};
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
    SplitPattern::Matcher split;
    BpeMerger merger;
    std::vector<std::int32_t> symbols;
    std::vector<std::int32_t>& out;
  };

  /// Splits off bytes that are not UTF-8, which become single-byte tokens: the pattern sees only text.
  Status encode_ordinary(std::string_view text, Worker& worker) const {
    while (!text.empty()) {
      const std::size_t valid = valid_utf8_length(text);
      FL_TRY(encode_utf8(text.substr(0, valid), worker));
      text.remove_prefix(valid);
      if (text.empty()) break;
      worker.out.push_back(vocabulary_.byte_id(static_cast<std::uint8_t>(text[0])));
      text.remove_prefix(1);
    }
    return {};
  }

  Status encode_utf8(std::string_view text, Worker& worker) const {
    return for_each_match(worker.split, text, [&](std::size_t begin, std::size_t end, bool) -> Status {
      const std::string_view piece = text.substr(begin, end - begin);
      if (const std::int32_t whole = vocabulary_.find(piece); whole != Vocabulary::kNone) {
        worker.out.push_back(whole);
        return {};
      }
      worker.symbols.clear();
      for (const char c : piece) worker.symbols.push_back(vocabulary_.byte_id(static_cast<std::uint8_t>(c)));
      worker.merger.merge(worker.symbols);
      worker.out.insert(worker.out.end(), worker.symbols.begin(), worker.symbols.end());
      return {};
    });
  }

  Vocabulary vocabulary_;
  MergeTable merges_;
  SpecialTokens specials_;
  SplitPattern split_;
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
  if (!config.added) return Error{config_file.name + ": added_tokens_decoder: is missing"};
  for (const AddedToken& token : *config.added) {
    const std::string field = config_file.name + ": added_tokens_decoder." + std::to_string(token.id);
    for (const auto& [set, flag] :
         {std::pair(token.lstrip, "lstrip"), std::pair(token.rstrip, "rstrip"),
          std::pair(token.single_word, "single_word"), std::pair(token.normalized, "normalized")}) {
      if (set) return Error{field + "." + flag + ": true is not supported"};
    }
    if (token.id < first || token.id >= first + count) {
      return Error{field + ": expected an id from " + std::to_string(first) + " to " +
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
  FL_ASSIGN(SplitPattern split, SplitPattern::regex(kimi_split_pattern()));
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
