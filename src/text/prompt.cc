#include "text/prompt.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "base/json_limits.h"

namespace firstlight {
namespace {

using Match = SpecialTokens::Match;

/// Appends the special tokens of text[begin, end), places in the whole text.
void find_all(const SpecialTokens& specials, std::string_view text, std::size_t begin, std::size_t end,
              std::vector<Match>& out) {
  const std::string_view part = text.substr(begin, end - begin);
  std::optional<Match> match;
  for (std::size_t at = 0; (match = specials.find(part, at)); at = match->begin + match->length) {
    out.push_back({begin + match->begin, match->length, match->id});
  }
}

/// The special tokens that lie between literal parts.
std::vector<Match> structural(const SpecialTokens& specials, const Prompt& prompt, std::string_view text) {
  std::vector<Match> found;
  std::size_t begin = 0;  // of the structure that ends at `at`
  std::size_t at = 0;
  for (const PromptPart& part : prompt.parts) {
    if (part.literal && !part.text.empty()) {
      find_all(specials, text, begin, at, found);
      begin = at + part.text.size();
    }
    at += part.text.size();
  }
  find_all(specials, text, begin, at, found);
  return found;
}

/// One id for each different text.
std::vector<std::int32_t> special_ids(const Tokenizer& tokenizer) {
  std::vector<std::int32_t> ids;
  std::unordered_set<std::string_view> seen;
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view text = tokenizer.token_bytes(id);
    if (tokenizer.is_special(id) && !text.empty() && seen.insert(text).second) ids.push_back(id);
  }
  return ids;
}

SpecialTokens special_tokens(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
  std::vector<std::string> texts;
  for (const std::int32_t id : ids) texts.emplace_back(tokenizer.token_bytes(id));
  auto specials = SpecialTokens::build(0, std::move(texts));
  check(specials.ok(), "the texts are different");
  return std::move(*specials);
}

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n") == text.npos; }

/// "<|…|>", or with full-width bars: no text of a person.
bool is_bracketed(std::string_view text) {
  return (text.starts_with("<|") && text.ends_with("|>")) ||
         (text.starts_with("<｜") && text.ends_with("｜>"));
}

}  // namespace

std::string Prompt::text() const {
  std::string whole;
  for (const PromptPart& part : parts) whole += part.text;
  return whole;
}

PromptEncoder::PromptEncoder(const Tokenizer& tokenizer)
    : tokenizer_(&tokenizer), ids_(special_ids(tokenizer)), specials_(special_tokens(tokenizer, ids_)) {}

Status PromptEncoder::encode(const Prompt& prompt, std::vector<std::int32_t>& out) const {
  if (!prompt.separate) return encode_joined(prompt, out);
  for (const PromptPart& part : prompt.parts) {
    const auto special = part.literal ? std::nullopt : specials_.find(part.text, 0);
    if (!part.literal && (!special || special->begin != 0)) {
      return Error{
          "the chat format needs the special token " + quote_text(part.text) +
          ", which the tokenizer does not have (where the folder has a chat_template.jinja, that is used)"};
    }
    FL_TRY(tokenizer_->encode(part.text, !part.literal, out));
  }
  return {};
}

Status PromptEncoder::encode_joined(const Prompt& prompt, std::vector<std::int32_t>& out) const {
  const std::string text = prompt.text();
  std::vector<Match> all;
  find_all(specials_, text, 0, text.size(), all);
  const std::vector<Match> structure = structural(specials_, prompt, text);
  const auto same = [](const Match& a, const Match& b) { return a.begin == b.begin && a.length == b.length; };
  if (std::equal(all.begin(), all.end(), structure.begin(), structure.end(), same)) {
    return tokenizer_->encode(text, /*parse_special=*/true, out);
  }

  std::size_t at = 0;
  for (const Match& match : structure) {
    FL_TRY(tokenizer_->encode(std::string_view(text).substr(at, match.begin - at), /*parse_special=*/false,
                              out));
    out.push_back(ids_[static_cast<std::size_t>(match.id)]);
    at = match.begin + match.length;
  }
  return tokenizer_->encode(std::string_view(text).substr(at), /*parse_special=*/false, out);
}

std::vector<std::string> PromptEncoder::control_texts(std::string_view template_text) const {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    const std::string_view text = specials_.content(static_cast<std::int32_t>(i));
    if (is_blank(text)) continue;
    const bool written = template_text.find(text) != template_text.npos;
    if (written || is_bracketed(text) || tokenizer_->is_skipped(ids_[i])) texts.emplace_back(text);
  }
  return texts;
}

}  // namespace firstlight
