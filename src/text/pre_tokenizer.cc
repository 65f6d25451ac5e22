#include "text/pre_tokenizer.h"

#include <utility>

#include "base/json_limits.h"
#include "text/byte_letters.h"
#include "text/json_fields.h"
#include "text/normalizer.h"

namespace firstlight {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxStages = 32;
constexpr std::size_t kMaxDepth = 8;

// What ByteLevel cuts by unless told otherwise.
constexpr std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kPunctuation = R"([\p{P}!-/:-@\[-`{-~])";

/// One character, as a string of its own.
Result<std::string> one_character(JsonFields& fields, std::string_view key) {
  FL_ASSIGN(std::string text, fields.text(key));
  std::size_t length = 0;
  if (!text.empty()) next_code_point(text, length);
  if (text.empty() || length != text.size()) return Error{fields.path(key) + ": expected one character"};
  return text;
}

}  // namespace

Result<PreTokenizer> PreTokenizer::create(const Json& json, const std::string& path) {
  PreTokenizer result;
  if (!json.is_null()) FL_TRY(result.add(json, path, 0));
  if (!result.stages_.empty() && std::holds_alternative<ByteLetters>(result.stages_.back())) {
    result.stages_.pop_back();
    result.ends_in_bytes_ = true;
  }
  return result;
}

bool PreTokenizer::cuts() const {
  for (const Stage& stage : stages_) {
    if (std::holds_alternative<Split>(stage)) return true;
  }
  return false;
}

Result<PreTokenizer::Behavior> PreTokenizer::behavior_of(const std::string& name, const std::string& path) {
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  if (name == "Contiguous") return Behavior::kContiguous;
  return Error{path + ": unknown behavior " + quote_text(name, 80)};
}

Status PreTokenizer::add_regex(std::string_view pattern, Behavior behavior, bool invert) {
  FL_ASSIGN(SplitPattern compiled, SplitPattern::regex(pattern));
  stages_.emplace_back(Split{std::move(compiled), behavior, invert});
  return {};
}

Status PreTokenizer::add(const Json& json, const std::string& path, std::size_t depth) {
  if (stages_.size() >= kMaxStages || depth == kMaxDepth) return Error{path + ": too many pre-tokenizers"};
  FL_ASSIGN(JsonFields fields, JsonFields::of(json, path));
  FL_ASSIGN(const std::string type, fields.text("type"));
  if (type == "Sequence") {
    FL_ASSIGN(const Json* list, fields.need("pretokenizers"));
    FL_TRY(fields.finish());
    if (!list->is_array()) return Error{fields.path("pretokenizers") + ": expected an array"};
    for (std::size_t i = 0; i < list->size(); ++i) {
      FL_TRY(add((*list)[i], fields.path("pretokenizers") + "[" + std::to_string(i) + "]", depth + 1));
    }
    return {};
  }
  if (type == "ByteLevel") {
    FL_ASSIGN(const bool prefix_space, fields.flag("add_prefix_space"));
    FL_ASSIGN(const bool use_regex, fields.flag("use_regex", true));
    FL_TRY(fields.flag("trim_offsets", true));  // only offsets, which nobody asks for
    if (prefix_space) stages_.emplace_back(PrefixSpace{});
    if (use_regex) FL_TRY(add_regex(kByteLevelPattern, Behavior::kIsolated));
    stages_.emplace_back(ByteLetters{});
  } else if (type == "Split") {
    FL_ASSIGN(const Json* pattern_json, fields.need("pattern"));
    FL_ASSIGN(SplitPattern pattern, read_pattern(*pattern_json, fields.path("pattern")));
    FL_ASSIGN(const std::string name, fields.text("behavior"));
    FL_ASSIGN(const Behavior behavior, behavior_of(name, fields.path("behavior")));
    FL_ASSIGN(const bool invert, fields.flag("invert", false));
    stages_.emplace_back(Split{std::move(pattern), behavior, invert});
  } else if (type == "Metaspace") {
    FL_ASSIGN(std::string replacement, one_character(fields, "replacement"));
    FL_ASSIGN(const auto scheme, fields.optional_text("prepend_scheme"));
    FL_ASSIGN(const bool prefix_space, fields.flag("add_prefix_space", true));  // the older name
    FL_ASSIGN(const bool split, fields.flag("split", true));
    FL_TRY(fields.optional_text("str_rep"));  // the replacement once more
    auto prepend = prefix_space ? Metaspace::Prepend::kAlways : Metaspace::Prepend::kNever;
    if (scheme == "never") {
      prepend = Metaspace::Prepend::kNever;
    } else if (scheme == "first") {
      prepend = Metaspace::Prepend::kFirst;
    } else if (scheme && scheme != "always") {
      return Error{fields.path("prepend_scheme") + ": unknown scheme " + quote_text(*scheme, 80)};
    }
    stages_.emplace_back(Metaspace{replacement, prepend});
    if (split) {
      stages_.emplace_back(Split{SplitPattern::literal(std::move(replacement)), Behavior::kMergedWithNext});
    }
  } else if (type == "Digits") {
    FL_ASSIGN(const bool individual, fields.flag("individual_digits"));
    FL_TRY(add_regex("\\p{N}", individual ? Behavior::kIsolated : Behavior::kContiguous));
  } else if (type == "Punctuation") {
    FL_ASSIGN(const auto name, fields.optional_text("behavior"));
    FL_ASSIGN(const Behavior behavior, behavior_of(name.value_or("Isolated"), fields.path("behavior")));
    FL_TRY(add_regex(kPunctuation, behavior));
  } else if (type == "Whitespace") {
    FL_TRY(add_regex("\\w+|[^\\w\\s]+", Behavior::kRemoved, true));
  } else if (type == "WhitespaceSplit") {
    FL_TRY(add_regex("\\s", Behavior::kRemoved));
  } else if (type == "CharDelimiterSplit") {
    FL_ASSIGN(std::string delimiter, one_character(fields, "delimiter"));
    stages_.emplace_back(Split{SplitPattern::literal(std::move(delimiter)), Behavior::kRemoved});
  } else {
    return Error{fields.path("type") + ": the pre-tokenizer " + quote_text(type, 80) + " is not supported"};
  }
  return fields.finish();
}

/// Joins matches and gaps to pieces as a behavior says.
class Merging {
 public:
  using Behavior = PreTokenizer::Behavior;
  explicit Merging(Behavior behavior) : behavior_(behavior) {}

  template <class Emit>
  Status take(std::size_t begin, std::size_t end, bool is_match, const Emit& emit) {
    bool extends = false;
    switch (behavior_) {
      case Behavior::kIsolated:
        return emit(begin, end);
      case Behavior::kRemoved:
        return is_match ? Status() : emit(begin, end);
      case Behavior::kContiguous:
        extends = is_match == after_match_;
        break;
      case Behavior::kMergedWithPrevious:
        extends = is_match && !after_match_;
        break;
      case Behavior::kMergedWithNext:
        extends = !is_match && after_match_;
        break;
    }
    after_match_ = is_match;
    if (extends && held_) {
      end_ = end;
      return {};
    }
    FL_TRY(finish(emit));
    held_ = true;
    begin_ = begin;
    end_ = end;
    return {};
  }

  template <class Emit>
  Status finish(const Emit& emit) {
    if (!held_) return {};
    held_ = false;
    return emit(begin_, end_);
  }

 private:
  Behavior behavior_;
  bool after_match_ = false;
  bool held_ = false;  // a piece that may still grow
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

PreTokenizer::Splitter::Splitter(const PreTokenizer& pre_tokenizer)
    : pre_tokenizer_(&pre_tokenizer), texts_(pre_tokenizer.stages_.size()) {
  for (const Stage& stage : pre_tokenizer.stages_) {
    const auto* split = std::get_if<Split>(&stage);
    matchers_.push_back(split != nullptr ? std::optional(SplitPattern::Matcher(split->pattern))
                                         : std::nullopt);
  }
}

Status PreTokenizer::Splitter::run(std::size_t index, std::string_view text, bool at_start, PieceSink& sink) {
  if (text.empty()) return {};
  if (index == pre_tokenizer_->stages_.size()) return sink.piece(text);
  const Stage& stage = pre_tokenizer_->stages_[index];
  if (const auto* split = std::get_if<Split>(&stage)) {
    const auto emit = [&](std::size_t begin, std::size_t end) {
      return run(index + 1, text.substr(begin, end - begin), at_start && begin == 0, sink);
    };
    Merging merging(split->behavior);
    FL_TRY(for_each_match(*matchers_[index], text, [&](std::size_t begin, std::size_t end, bool is_match) {
      return merging.take(begin, end, is_match != split->invert, emit);
    }));
    return merging.finish(emit);
  }
  std::string& made = texts_[index];
  made.clear();
  if (const auto* metaspace = std::get_if<Metaspace>(&stage)) {
    const auto prepend = metaspace->prepend;
    if ((prepend == Metaspace::Prepend::kAlways || (prepend == Metaspace::Prepend::kFirst && at_start)) &&
        text[0] != ' ' && !text.starts_with(metaspace->replacement)) {
      made += metaspace->replacement;
    }
    for (const char c : text) {
      if (c == ' ') {
        made += metaspace->replacement;
      } else {
        made += c;
      }
    }
  } else if (std::holds_alternative<PrefixSpace>(stage)) {
    if (text[0] == ' ') return run(index + 1, text, at_start, sink);
    made += ' ';
    made += text;
  } else {
    append_letters(text, made);
  }
  return run(index + 1, made, at_start, sink);
}

}  // namespace firstlight
