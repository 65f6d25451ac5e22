#include "text/token_decoder.h"

#include <utility>

#include "base/json_limits.h"
#include "text/byte_letters.h"
#include "text/json_fields.h"
#include "text/normalizer.h"

namespace firstlight {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxSteps = 16;
constexpr std::size_t kMaxDepth = 8;
constexpr std::size_t kMaxContent = 64;  // bytes that one match may become
constexpr std::size_t kFreeGrowth = 16;
constexpr std::size_t kGrowth = 4;

void strip(std::string& text, std::string_view content, std::size_t start, std::size_t stop) {
  std::string_view rest = text;
  for (; start != 0 && rest.starts_with(content); --start) rest.remove_prefix(content.size());
  for (; stop != 0 && rest.ends_with(content); --stop) rest.remove_suffix(content.size());
  text = std::string(rest);
}

}  // namespace

int byte_of_fallback(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && !(c >= 'A' && c <= 'F')) return -1;
    value = value * 16 + (digit ? c - '0' : c - 'A' + 10);
  }
  return value;
}

Result<TokenDecoder> TokenDecoder::create(const Json& json, const std::string& path) {
  TokenDecoder decoder;
  if (json.is_null()) {
    decoder.steps_.emplace_back(PrefixBlank{});
    decoder.leading_blanks_ = 1;
    return decoder;
  }
  FL_TRY(decoder.add(json, path, 0));
  return decoder;
}

Status TokenDecoder::add(const Json& json, const std::string& path, std::size_t depth) {
  if (steps_.size() >= kMaxSteps || depth == kMaxDepth) return Error{path + ": too many decoders"};
  FL_ASSIGN(JsonFields fields, JsonFields::of(json, path));
  FL_ASSIGN(const std::string type, fields.text("type"));
  if (type == "Sequence") {
    FL_ASSIGN(const Json* list, fields.need("decoders"));
    FL_TRY(fields.finish());
    if (!list->is_array()) return Error{fields.path("decoders") + ": expected an array"};
    for (std::size_t i = 0; i < list->size(); ++i) {
      FL_TRY(add((*list)[i], fields.path("decoders") + "[" + std::to_string(i) + "]", depth + 1));
    }
    return {};
  }
  FL_TRY(add_step(fields, type));
  return fields.finish();
}

Status TokenDecoder::add_step(JsonFields& fields, const std::string& type) {
  const bool was_fused = fused_;
  bool may_follow_fuse = false;
  if (type == "ByteLevel") {
    FL_TRY(fields.flag("add_prefix_space", true));  // these three matter only for encoding
    FL_TRY(fields.flag("trim_offsets", true));
    FL_TRY(fields.flag("use_regex", true));
    steps_.emplace_back(ByteLevel{});
  } else if (type == "ByteFallback") {
    steps_.emplace_back(ByteFallback{});
  } else if (type == "Fuse") {
    fused_ = true;
    may_follow_fuse = true;
  } else if (type == "Replace") {
    FL_ASSIGN(const Json* pattern_json, fields.need("pattern"));
    FL_ASSIGN(SplitPattern pattern, read_pattern(*pattern_json, fields.path("pattern")));
    FL_ASSIGN(std::string content, fields.text("content"));
    if (content.size() > kMaxContent) return Error{fields.path("content") + ": is longer than 64 bytes"};
    steps_.emplace_back(Replace{std::move(pattern), std::move(content)});
  } else if (type == "Strip") {
    FL_ASSIGN(std::string content, fields.text("content"));
    FL_ASSIGN(const std::int64_t start, fields.count("start"));
    FL_ASSIGN(const std::int64_t stop, fields.count("stop"));
    if (content.empty()) return Error{fields.path("content") + ": is empty"};
    if (!fused_) {
      steps_.emplace_back(
          Strip{std::move(content), static_cast<std::size_t>(start), static_cast<std::size_t>(stop)});
    } else {
      // The end of a text that is still being written is not known.
      if (stop != 0) return Error{fields.path("stop") + ": after Fuse only 0 is supported"};
      if (content != " ") return Error{fields.path("content") + ": after Fuse only a blank is supported"};
      leading_blanks_ += static_cast<std::size_t>(start);
      may_follow_fuse = true;
    }
  } else if (type == "Metaspace") {
    FL_ASSIGN(std::string replacement, fields.text("replacement"));
    FL_ASSIGN(const auto scheme, fields.optional_text("prepend_scheme"));
    FL_ASSIGN(const bool prefix_space, fields.flag("add_prefix_space", true));
    FL_TRY(fields.flag("split", true));
    FL_TRY(fields.optional_text("str_rep"));
    if (replacement.empty()) return Error{fields.path("replacement") + ": is empty"};
    if (scheme && scheme != "always" && scheme != "first" && scheme != "never") {
      return Error{fields.path("prepend_scheme") + ": unknown scheme " + quote_text(*scheme, 80)};
    }
    const bool drop_first = scheme ? scheme != "never" : prefix_space;
    first_differs_ |= drop_first;
    steps_.emplace_back(Metaspace{std::move(replacement), drop_first});
  } else {
    return Error{fields.path("type") + ": the decoder " + quote_text(type, 80) + " is not supported"};
  }
  if (was_fused && !may_follow_fuse) {
    return Error{fields.path("type") + ": " + quote_text(type, 80) + " after Fuse is not supported"};
  }
  return {};
}

Result<std::string> TokenDecoder::decode(std::string_view token, bool added, bool first) const {
  std::string text(token);
  std::string out;
  const std::size_t limit = kFreeGrowth + kGrowth * token.size();
  for (const Step& step : steps_) {
    out.clear();
    if (std::holds_alternative<ByteLevel>(step)) {
      if (added) continue;
      if (auto bytes = bytes_of_letters(text)) return std::move(*bytes);
      continue;
    }
    if (std::holds_alternative<ByteFallback>(step)) {
      // A lone byte is no text that a later step could treat.
      if (const int b = byte_of_fallback(text); b >= 0) {
        return std::string(1, static_cast<char>(static_cast<std::uint8_t>(b)));
      }
      continue;
    }
    if (const auto* stripping = std::get_if<Strip>(&step)) {
      strip(text, stripping->content, stripping->start, stripping->stop);
      continue;
    }
    if (const auto* replace = std::get_if<Replace>(&step)) {
      FL_TRY(append_replaced(replace->pattern, replace->content, text, limit, out));
    } else if (const auto* metaspace = std::get_if<Metaspace>(&step)) {
      const SplitPattern pattern = SplitPattern::literal(metaspace->replacement);
      FL_TRY(append_replaced(pattern, first && metaspace->drop_first ? "" : " ", text, limit, out));
    } else {
      out = " " + text;
    }
    std::swap(text, out);
  }
  return text;
}

}  // namespace firstlight
