#include "text/split_regex.h"

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace firstlight {
namespace {

constexpr std::array<std::string_view, 8> kScripts = {"Han",   "Hiragana", "Katakana", "Hangul",
                                                      "Latin", "Cyrillic", "Thai",     "Arabic"};

// Reads the pattern once, left to right. A class is collected apart so that && inside it can become a
// lookahead before it.
class Rewriter {
 public:
  explicit Rewriter(std::string_view pattern) : rest_(pattern) {}

  Result<std::string> run() {
    std::string out;
    while (!rest_.empty()) {
      if (rest_[0] == '[') {
        FL_ASSIGN(const std::string whole_class, character_class());
        out += whole_class;
      } else if (rest_[0] == '\\') {
        FL_ASSIGN(const std::string escaped, escape());
        out += escaped;
      } else {
        out += take(1);
      }
    }
    return out;
  }

 private:
  std::string_view take(std::size_t n) {
    const std::string_view head = rest_.substr(0, n);
    rest_.remove_prefix(head.size());
    return head;
  }

  // "\x", "\p{Name}": rest_ begins with the backslash.
  Result<std::string> escape() {
    if (rest_.size() < 2) return Error{"the pattern ends in a backslash"};
    const std::string_view code = take(2);
    if (code == "\\s") return std::string("\\p{White_Space}");
    if (code == "\\S") return std::string("\\P{White_Space}");
    if (code != "\\p" && code != "\\P") return std::string(code);
    if (!rest_.starts_with('{')) {  // \pL
      if (rest_.empty()) return Error{"the pattern ends in " + std::string(code)};
      return std::string(code) + std::string(take(1));
    }
    const std::size_t close = rest_.find('}');
    if (close == std::string_view::npos) return Error{"unclosed { after " + std::string(code)};
    const std::string_view name = rest_.substr(1, close - 1);
    take(close + 1);
    if (name.size() == 1 || name.size() == 2) {  // a general category
      return std::string(code) + "{" + std::string(name) + "}";
    }
    if (std::find(kScripts.begin(), kScripts.end(), name) == kScripts.end()) {
      return Error{"unknown property \\p{" + std::string(name) + "}"};
    }
    return std::string(code) + "{sc:" + std::string(name) + "}";
  }

  // "[…]" or "[…&&[^…]]": rest_ begins with the bracket.
  Result<std::string> character_class() {
    std::string base(take(1));
    if (rest_.starts_with('^')) base += take(1);
    std::string excluded;
    while (!rest_.empty() && rest_[0] != ']') {
      if (rest_.starts_with("&&")) {
        if (!excluded.empty() || base.starts_with("[^") || !rest_.starts_with("&&[^")) {
          return Error{"only the class intersection [A&&[^B]] is supported"};
        }
        take(4);
        FL_ASSIGN(const std::string members, class_members());
        excluded = "[" + members + "]";
        if (!rest_.starts_with(']')) return Error{"only the class intersection [A&&[^B]] is supported"};
      } else {
        FL_ASSIGN(const std::string member, class_member());
        base += member;
      }
    }
    if (rest_.empty()) return Error{"unclosed ["};
    base += take(1);
    return excluded.empty() ? base : "(?:(?!" + excluded + ")" + base + ")";
  }

  // Up to and including the closing bracket, which is not returned.
  Result<std::string> class_members() {
    std::string members;
    while (!rest_.empty() && rest_[0] != ']') {
      FL_ASSIGN(const std::string member, class_member());
      members += member;
    }
    if (rest_.empty()) return Error{"unclosed ["};
    take(1);
    return members;
  }

  Result<std::string> class_member() {
    if (rest_[0] == '[' || rest_.starts_with("&&")) return Error{"a class inside a class is not supported"};
    if (rest_[0] == '\\') return escape();
    return std::string(take(1));
  }

  std::string_view rest_;
};

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 128> text{};  // the size the manual recommends
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

Result<std::string> to_pcre2(std::string_view pattern) { return Rewriter(pattern).run(); }

void SplitRegex::FreeCode::operator()(void* code) const { pcre2_code_free(static_cast<pcre2_code*>(code)); }

void SplitRegex::Matcher::FreeData::operator()(void* data) const {
  pcre2_match_data_free(static_cast<pcre2_match_data*>(data));
}

Result<SplitRegex> SplitRegex::compile(std::string_view pattern) {
  const auto rewritten = to_pcre2(pattern);
  if (!rewritten) return Error{"split pattern: " + rewritten.error().message};
  int code = 0;
  PCRE2_SIZE offset = 0;
  SplitRegex regex;
  regex.code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(rewritten->data()), rewritten->size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &code, &offset, nullptr));
  if (regex.code_ == nullptr) {
    return Error{"split pattern: " + pcre2_message(code) + " at offset " + std::to_string(offset) + " of " +
                 *rewritten};
  }
  return regex;
}

SplitRegex::Matcher::Matcher(const SplitRegex& regex)
    : regex_(&regex), data_(pcre2_match_data_create(1, nullptr)) {  // one pair: only the whole match
  if (data_ == nullptr) throw std::bad_alloc();
}

Result<std::size_t> SplitRegex::Matcher::match(std::string_view text, std::size_t position) {
  auto* data = static_cast<pcre2_match_data*>(data_.get());
  const int count = pcre2_match(static_cast<const pcre2_code*>(regex_->code_.get()),
                                reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), position,
                                PCRE2_NO_UTF_CHECK, data, nullptr);
  if (count < 0) {
    return Error{"split pattern: " + pcre2_message(count) + " at byte " + std::to_string(position)};
  }
  const PCRE2_SIZE end = pcre2_get_ovector_pointer(data)[1];
  if (end <= position) return Error{"split pattern: empty match at byte " + std::to_string(position)};
  return end - position;
}

}  // namespace firstlight
