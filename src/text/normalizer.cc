#include "text/normalizer.h"

#include <utf8proc.h>

#include <utility>

#include "base/json_limits.h"
#include "text/byte_letters.h"
#include "text/json_fields.h"

namespace firstlight {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxSteps = 64;
constexpr std::size_t kMaxDepth = 8;
constexpr std::size_t kMaxContent = 1024;  // bytes that one match may become
// NFKD makes eleven bytes of one in the worst case.
constexpr std::size_t kGrowth = 64;
constexpr std::size_t kFreeGrowth = 1 << 16;

void append_lowercase(std::string_view text, std::string& out) {
  for (std::size_t i = 0; i < text.size();) {
    const char32_t c = next_code_point(text, i);
    // The only character whose lower case is two characters whatever stands around it.
    if (c == 0x130) {
      out += "i\u0307";
    } else {
      append_utf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
    }
  }
}

void append_without_marks(std::string_view text, std::string& out) {
  const CategorySet marks = category_set("M");
  for (std::size_t i = 0; i < text.size();) {
    const char32_t c = next_code_point(text, i);
    if ((category_of(c) & marks) == 0) append_utf8(c, out);
  }
}

std::string_view stripped(std::string_view text, bool left, bool right) {
  while (left && !text.empty()) {
    std::size_t next = 0;
    if (!is_white_space(next_code_point(text, next))) break;
    text.remove_prefix(next);
  }
  while (right && !text.empty()) {
    const std::size_t start = previous_start(text, text.size());
    std::size_t next = start;
    if (!is_white_space(next_code_point(text, next))) break;
    text.remove_suffix(text.size() - start);
  }
  return text;
}

}  // namespace

Result<SplitPattern> read_pattern(const Json& json, const std::string& path) {
  FL_ASSIGN(JsonFields fields, JsonFields::of(json, path));
  FL_ASSIGN(const auto literal, fields.optional_text("String"));
  FL_ASSIGN(const auto regex, fields.optional_text("Regex"));
  FL_TRY(fields.finish());
  if (literal.has_value() == regex.has_value()) return Error{path + ": expected \"String\" or \"Regex\""};
  if (literal) return SplitPattern::literal(*literal);
  auto pattern = SplitPattern::regex(*regex);
  if (!pattern) return Error{path + ".Regex: " + pattern.error().message};
  return pattern;
}

Status append_replaced(const SplitPattern& pattern, std::string_view content, std::string_view text,
                       std::size_t limit, std::string& out) {
  SplitPattern::Matcher matcher(pattern);
  return for_each_match(matcher, text, [&](std::size_t begin, std::size_t end, bool is_match) -> Status {
    out += is_match ? content : text.substr(begin, end - begin);
    if (out.size() > limit) return Error{"a replacement makes the text too long"};
    return {};
  });
}

Result<Normalizer> Normalizer::create(const Json& json, const std::string& path) {
  Normalizer normalizer;
  if (!json.is_null()) FL_TRY(normalizer.add(json, path, 0));
  return normalizer;
}

Status Normalizer::add(const Json& json, const std::string& path, std::size_t depth) {
  if (steps_.size() == kMaxSteps || depth == kMaxDepth) return Error{path + ": too many normalizers"};
  FL_ASSIGN(JsonFields fields, JsonFields::of(json, path));
  FL_ASSIGN(const std::string type, fields.text("type"));
  if (type == "Sequence") {
    FL_ASSIGN(const Json* list, fields.need("normalizers"));
    FL_TRY(fields.finish());
    if (!list->is_array()) return Error{fields.path("normalizers") + ": expected an array"};
    for (std::size_t i = 0; i < list->size(); ++i) {
      FL_TRY(add((*list)[i], fields.path("normalizers") + "[" + std::to_string(i) + "]", depth + 1));
    }
    return {};
  }
  if (type == "NFC") {
    steps_.emplace_back(Form{NormalForm::kNfc});
  } else if (type == "NFD") {
    steps_.emplace_back(Form{NormalForm::kNfd});
  } else if (type == "NFKC") {
    steps_.emplace_back(Form{NormalForm::kNfkc});
  } else if (type == "NFKD") {
    steps_.emplace_back(Form{NormalForm::kNfkd});
  } else if (type == "Lowercase") {
    steps_.emplace_back(Lowercase{});
  } else if (type == "StripAccents") {
    steps_.emplace_back(StripAccents{});
  } else if (type == "ByteLevel") {
    steps_.emplace_back(ByteLetters{});
  } else if (type == "Strip") {
    FL_ASSIGN(const bool left, fields.flag("strip_left"));
    FL_ASSIGN(const bool right, fields.flag("strip_right"));
    steps_.emplace_back(Strip{left, right});
  } else if (type == "Prepend") {
    FL_ASSIGN(std::string text, fields.text("prepend"));
    if (text.size() > kMaxContent) return Error{fields.path("prepend") + ": is longer than 1024 bytes"};
    steps_.emplace_back(Prepend{std::move(text)});
  } else if (type == "Replace") {
    FL_ASSIGN(const Json* pattern_json, fields.need("pattern"));
    FL_ASSIGN(SplitPattern pattern, read_pattern(*pattern_json, fields.path("pattern")));
    FL_ASSIGN(std::string content, fields.text("content"));
    if (content.size() > kMaxContent) return Error{fields.path("content") + ": is longer than 1024 bytes"};
    steps_.emplace_back(Replace{std::move(pattern), std::move(content)});
  } else {
    return Error{fields.path("type") + ": the normalizer " + quote_text(type, 80) + " is not supported"};
  }
  return fields.finish();
}

Status Normalizer::apply(std::string& text) const {
  const std::size_t limit = kFreeGrowth + kGrowth * text.size();
  std::string out;
  for (const Step& step : steps_) {
    out.clear();
    if (const auto* form = std::get_if<Form>(&step)) {
      append_normalized(form->form, text, out);
    } else if (std::holds_alternative<Lowercase>(step)) {
      append_lowercase(text, out);
    } else if (std::holds_alternative<StripAccents>(step)) {
      append_without_marks(text, out);
    } else if (const auto* strip = std::get_if<Strip>(&step)) {
      out = stripped(text, strip->left, strip->right);
    } else if (const auto* prepend = std::get_if<Prepend>(&step)) {
      if (!text.empty()) out = prepend->text + text;
    } else if (const auto* replace = std::get_if<Replace>(&step)) {
      FL_TRY(append_replaced(replace->pattern, replace->content, text, limit, out));
    } else {
      append_letters(text, out);
    }
    if (out.size() > limit) return Error{"the normalizer makes the text too long"};
    std::swap(text, out);
  }
  return {};
}

}  // namespace firstlight
