#include "text/tokenizer_json_file.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "base/json_limits.h"
#include "text/json_fields.h"

namespace firstlight {
namespace {

using Json = nlohmann::ordered_json;

// A value of a tree costs about 100 bytes. Real files have a few hundred values in their small parts, and
// eight for each of up to some thousand added tokens.
constexpr JsonLimits kPartLimits = {.max_bytes = SIZE_MAX, .max_depth = 32, .max_values = 1U << 15};
constexpr JsonLimits kAddedLimits = {.max_bytes = SIZE_MAX, .max_depth = 4, .max_values = 1U << 19};

using Span = Vocabulary::Span;

/// The vocabulary and the merges in the order of the file.
struct RawModel {
  struct Token {
    Span text;
    std::int32_t id;
  };
  std::string blob;
  std::vector<Token> tokens;
  std::string merge_blob;
  std::vector<std::pair<Span, Span>> merges;  // in merge_blob
};

class Reader final : public JsonHandler {
 public:
  Reader(TokenizerJsonFile& file, RawModel& raw) : file_(&file), raw_(&raw) {}

  bool null() override {
    if (part_) return passed_on(part_->null());
    return place_ == Place::kModel ? scalar([&] { return take_null(); }) : unexpected();
  }
  bool boolean(bool value) override {
    if (part_) return passed_on(part_->boolean(value));
    return place_ == Place::kModel ? scalar([&] { return take_flag(value); }) : unexpected();
  }
  bool number_integer(number_integer_t value) override {
    return part_ ? passed_on(part_->number_integer(value)) : unexpected();
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (part_) return passed_on(part_->number_unsigned(value));
    return place_ == Place::kVocab ? add_token(value) : unexpected();
  }
  bool number_float(number_float_t value, const string_t& text) override {
    if (part_) return passed_on(part_->number_float(value, text));
    if (place_ == Place::kModel && key_ == "dropout" && value == 0) return true;
    return unexpected();
  }
  bool string(string_t& value) override {
    if (part_) return passed_on(part_->string(value));
    if (place_ == Place::kModel) return scalar([&] { return take_text(value); });
    if (place_ == Place::kMerges) return add_merge_line(value);
    if (place_ == Place::kMergePair) return add_merge_half(value);
    return unexpected();
  }
  bool key(string_t& name) override {
    if (part_) return passed_on(part_->key(name));
    if (place_ == Place::kVocab) {
      token_ = append(raw_->blob, name);
      return true;
    }
    key_ = name;
    if (place_ == Place::kTop) return top_key();
    return first_time(model_keys_, "model.");
  }
  bool start_object(std::size_t size) override {
    if (part_) return passed_on(part_->start_object(size));
    if (place_ == Place::kOutside) return enter(Place::kTop);
    if (place_ == Place::kTop && key_ == "model") return enter(Place::kModel);
    if (place_ == Place::kModel && key_ == "vocab") return enter(Place::kVocab);
    return unexpected();
  }
  bool end_object() override {
    if (part_) return passed_on(part_->end_object());
    place_ = place_ == Place::kVocab   ? Place::kModel
             : place_ == Place::kModel ? Place::kTop
                                       : Place::kOutside;
    return true;
  }
  bool start_array(std::size_t size) override {
    if (part_) return passed_on(part_->start_array(size));
    if (place_ == Place::kModel && key_ == "merges") return enter(Place::kMerges);
    if (place_ == Place::kMerges) {
      halves_ = 0;
      return enter(Place::kMergePair);
    }
    return unexpected();
  }
  bool end_array() override {
    if (part_) return passed_on(part_->end_array());
    if (place_ == Place::kMergePair) {
      if (halves_ != 2) return fail(merge_name() + ": expected two tokens");
      return count_merge();
    }
    place_ = Place::kModel;
    return true;
  }

  [[nodiscard]] bool has_model_key(std::string_view key) const {
    return std::find(model_keys_.begin(), model_keys_.end(), key) != model_keys_.end();
  }
  [[nodiscard]] bool has_model() const {
    return std::find(keys_.begin(), keys_.end(), "model") != keys_.end();
  }

 protected:
  bool unexpected() override {
    switch (place_) {
      case Place::kOutside:
        return fail("expected a JSON object");
      case Place::kTop:
        return fail(quote_text(key_, 80) + ": expected an object");
      case Place::kModel:
        return fail("model." + field_name(key_) + ": a value of this type is not expected");
      case Place::kVocab:
        return fail("model.vocab: expected an id from 0 to " + std::to_string(MergeTable::kLargestId) +
                    " for " +
                    quote_text(std::string_view(raw_->blob).substr(token_.offset, token_.length), 80));
      case Place::kMerges:
      case Place::kMergePair:
        return fail(merge_name() + ": expected \"left right\" or [\"left\", \"right\"]");
    }
    return false;
  }

 private:
  enum class Place { kOutside, kTop, kModel, kVocab, kMerges, kMergePair };

  bool enter(Place place) {
    place_ = place;
    return true;
  }
  static std::string field_name(const std::string& key) {
    const std::string quoted = quote_text(key, 80);
    return quoted.substr(1, quoted.size() - 2);
  }
  [[nodiscard]] std::string merge_name() const {
    return "model.merges[" + std::to_string(merge_count_) + "]";
  }

  bool first_time(std::vector<std::string>& seen, const std::string& prefix) {
    if (std::find(seen.begin(), seen.end(), key_) != seen.end()) {
      return fail("key " + prefix + field_name(key_) + " appears twice");
    }
    constexpr std::array<std::string_view, 10> known = {"type",
                                                        "dropout",
                                                        "unk_token",
                                                        "continuing_subword_prefix",
                                                        "end_of_word_suffix",
                                                        "fuse_unk",
                                                        "byte_fallback",
                                                        "ignore_merges",
                                                        "vocab",
                                                        "merges"};
    if (!prefix.empty() && std::find(known.begin(), known.end(), key_) == known.end()) {
      return fail("model: unknown field " + quote_text(key_, 80));
    }
    seen.push_back(key_);
    return true;
  }

  bool top_key() {
    constexpr std::array<std::string_view, 9> known = {"version",        "truncation", "padding",
                                                       "added_tokens",   "normalizer", "pre_tokenizer",
                                                       "post_processor", "decoder",    "model"};
    if (std::find(known.begin(), known.end(), key_) == known.end()) {
      return fail("unknown field " + quote_text(key_, 80));
    }
    if (!first_time(keys_, "")) return false;
    if (key_ != "model") {
      part_ = std::make_unique<JsonTreeBuilder>(key_ == "added_tokens" ? kAddedLimits : kPartLimits);
    }
    return true;
  }

  /// After an event that went to the part being read.
  bool passed_on(bool accepted) {
    if (!accepted) return fail(key_ + ": " + part_->failure());
    if (!part_->complete()) return true;
    Json value = part_->take();
    part_.reset();
    if (key_ == "normalizer") file_->normalizer = std::move(value);
    if (key_ == "pre_tokenizer") file_->pre_tokenizer = std::move(value);
    if (key_ == "post_processor") file_->post_processor = std::move(value);
    if (key_ == "decoder") file_->decoder = std::move(value);
    if (key_ == "added_tokens") return take_added(value);
    if (key_ == "version" && value != "1.0") return fail("version: expected \"1.0\"");
    // Truncation and padding are for batches of a training library; nobody asks for them here.
    if ((key_ == "truncation" || key_ == "padding") && !value.is_null() && !value.is_object()) {
      return fail(key_ + ": expected an object or null");
    }
    return true;
  }

  bool take_added(const Json& list) {
    if (list.is_null()) return true;
    if (!list.is_array()) return fail("added_tokens: expected an array");
    for (std::size_t i = 0; i < list.size(); ++i) {
      auto token = read_added(list[i], "added_tokens[" + std::to_string(i) + "]");
      if (!token) return fail(token.error().message);
      file_->added.push_back(std::move(*token));
    }
    return true;
  }

  static Result<AddedToken> read_added(const Json& value, const std::string& field) {
    FL_ASSIGN(JsonFields fields, JsonFields::of(value, field));
    FL_ASSIGN(const std::int64_t id, fields.count("id"));
    if (id > MergeTable::kLargestId) {
      return Error{field + ".id: expected at most " + std::to_string(MergeTable::kLargestId)};
    }
    for (const char* key : {"content", "single_word", "lstrip", "rstrip", "normalized", "special"}) {
      FL_TRY(fields.need(key));
    }
    FL_TRY(fields.finish());
    return parse_added_token(value, static_cast<std::int32_t>(id), field);
  }

  /// A value of the model that is no container.
  template <class Take>
  bool scalar(const Take& take) {
    return take() || (failure().empty() && unexpected());
  }
  bool take_null() {
    return key_ == "dropout" || key_ == "unk_token" || key_ == "continuing_subword_prefix" ||
           key_ == "end_of_word_suffix";
  }
  bool take_flag(bool value) {
    bool* target = key_ == "fuse_unk"        ? &file_->fuse_unk
                   : key_ == "byte_fallback" ? &file_->byte_fallback
                   : key_ == "ignore_merges" ? &file_->ignore_merges
                                             : nullptr;
    if (target == nullptr) return false;
    *target = value;
    return true;
  }
  bool take_text(string_t& value) {
    if (key_ == "type") {
      if (value == "BPE") return true;
      return fail("model.type: " + quote_text(value, 80) + " is not supported (expected \"BPE\")");
    }
    if (key_ == "unk_token") {
      file_->unk_token = std::move(value);
    } else if (key_ == "continuing_subword_prefix") {
      file_->continuing_subword_prefix = std::move(value);
    } else if (key_ == "end_of_word_suffix") {
      file_->end_of_word_suffix = std::move(value);
    } else {
      return false;
    }
    return true;
  }

  static Span append(std::string& blob, std::string_view text) {
    const Span span = {static_cast<std::uint32_t>(blob.size()), static_cast<std::uint32_t>(text.size())};
    blob += text;
    return span;
  }
  bool add_token(number_unsigned_t id) {
    if (id > static_cast<number_unsigned_t>(MergeTable::kLargestId)) return unexpected();
    raw_->tokens.push_back({token_, static_cast<std::int32_t>(id)});
    return true;
  }
  bool add_merge_line(const string_t& line) {
    if (line.starts_with("#version") && merge_count_ == 0)
      return true;  // a first line that older files carry
    const std::size_t blank = line.find(' ');
    if (blank == std::string::npos || line.find(' ', blank + 1) != std::string::npos) return unexpected();
    left_ = append(raw_->merge_blob, std::string_view(line).substr(0, blank));
    right_ = append(raw_->merge_blob, std::string_view(line).substr(blank + 1));
    return count_merge();
  }
  bool add_merge_half(const string_t& text) {
    if (halves_ == 2) return unexpected();
    (halves_ == 0 ? left_ : right_) = append(raw_->merge_blob, text);
    ++halves_;
    return true;
  }
  bool count_merge() {
    place_ = Place::kMerges;
    if (merge_count_ == MergeTable::kMaxMerges) return fail("model.merges: too many");
    raw_->merges.emplace_back(left_, right_);
    ++merge_count_;
    return true;
  }

  TokenizerJsonFile* file_;
  RawModel* raw_;
  Place place_ = Place::kOutside;
  std::unique_ptr<JsonTreeBuilder> part_;  // of the part that is being read
  std::string key_;                        // of the top object or of the model
  std::vector<std::string> keys_;
  std::vector<std::string> model_keys_;
  Span token_;
  Span left_;
  Span right_;
  int halves_ = 0;
  std::size_t merge_count_ = 0;
};

/// Sorts the tokens by id.
Status place_tokens(const RawModel& raw, const std::string& name, TokenizerJsonFile& file) {
  std::int32_t largest = -1;
  for (const auto& token : raw.tokens) largest = std::max(largest, token.id);
  std::vector<bool> taken(static_cast<std::size_t>(largest) + 1);
  file.spans.resize(taken.size());
  for (const auto& token : raw.tokens) {
    const auto id = static_cast<std::size_t>(token.id);
    if (taken[id]) return Error{name + ": model.vocab: two tokens have the id " + std::to_string(id)};
    taken[id] = true;
    file.spans[id] = token.text;
  }
  return {};
}

Status resolve_merges(const RawModel& raw, const Vocabulary& vocabulary, const std::string& name,
                      TokenizerJsonFile& file) {
  const std::string_view blob = raw.merge_blob;
  file.merges.reserve(raw.merges.size());
  std::string joined;
  for (std::size_t i = 0; i < raw.merges.size(); ++i) {
    const auto text_of = [&](Span s) { return blob.substr(s.offset, s.length); };
    const std::string_view left = text_of(raw.merges[i].first);
    const std::string_view right = text_of(raw.merges[i].second);
    const auto fail = [&](const std::string& what) {
      return Error{name + ": model.merges[" + std::to_string(i) + "]: " + what};
    };
    const std::string& prefix = file.continuing_subword_prefix;
    joined = left;
    // The prefix marks tokens that do not begin a word; what is joined to another loses it.
    joined += right.starts_with(prefix) ? right.substr(prefix.size()) : right;
    const auto id_of = [&](std::string_view token, std::int32_t& id) -> Status {
      id = vocabulary.find(token);
      return id == Vocabulary::kNone ? Status(fail(quote_text(token, 80) + " is not in the vocabulary"))
                                     : Status();
    };
    MergeTable::Merge merge{};
    FL_TRY(id_of(left, merge.left));
    FL_TRY(id_of(right, merge.right));
    FL_TRY(id_of(joined, merge.result));
    if (joined.size() <= left.size()) return fail("joins nothing to " + quote_text(left, 80));
    file.merges.push_back(merge);
  }
  return {};
}

}  // namespace

Result<TokenizerJsonFile> parse_tokenizer_json(std::string_view text, const std::string& name) {
  constexpr std::size_t kLimit = std::size_t{1} << 30;  // offsets have 32 bits; known files have some 30 MB
  if (text.size() > kLimit) return Error{name + ": larger than 1 GiB"};
  TokenizerJsonFile file;
  RawModel raw;
  Reader reader(file, raw);
  FL_TRY(read_json_events(text, name, reader));
  if (!reader.has_model()) return Error{name + ": model: is missing"};
  for (const char* key : {"vocab", "merges"}) {
    if (!reader.has_model_key(key)) return Error{name + ": model." + key + ": is missing"};
  }
  if (raw.tokens.empty()) return Error{name + ": model.vocab: is empty"};
  FL_TRY(place_tokens(raw, name, file));
  raw.tokens = {};
  auto vocabulary = Vocabulary::build(raw.blob, file.spans);
  if (!vocabulary) return Error{name + ": model.vocab: " + vocabulary.error().message};
  FL_TRY(resolve_merges(raw, *vocabulary, name, file));
  file.blob = std::move(raw.blob);
  return file;
}

}  // namespace firstlight
