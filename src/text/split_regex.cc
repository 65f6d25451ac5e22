#include "text/split_regex.h"

#include <array>
#include <chrono>
#include <new>
#include <utility>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/json_limits.h"
#include "text/char_class.h"

namespace firstlight {
namespace {

// Steps of one match. Known patterns take a few for each character of a piece; an exponential one is stopped
// within a second.
constexpr std::uint32_t kMatchLimit = 20'000'000;
constexpr std::uint32_t kHeapLimit = 64 * 1024;  // KiB
constexpr std::size_t kJitStack = std::size_t{1} << 20;
constexpr std::size_t kWindow = 1024;  // starting places of one search

/// For one text: a hundred times what known patterns take.
std::chrono::nanoseconds time_limit(std::size_t bytes) {
  return std::chrono::seconds(5) + std::chrono::microseconds(bytes);
}

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 128> text{};  // the size the manual recommends
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

/// Groups that tokenizers' dialects have; PCRE2's own (calls of groups, conditions, callouts, verbs) can take
/// any time.
bool is_known_group(std::string_view pattern) {
  if (pattern.starts_with("(*")) return false;
  if (!pattern.starts_with("(?")) return true;
  pattern.remove_prefix(2);
  for (const std::string_view known : {":", "=", "!", ">", "<=", "<!"}) {
    if (pattern.starts_with(known)) return true;
  }
  const std::size_t flags = pattern.find_first_not_of("imsx-");
  return flags != 0 && flags != pattern.npos && (pattern[flags] == ':' || pattern[flags] == ')');
}

}  // namespace

Result<std::string> to_pcre2(std::string_view pattern) {
  constexpr std::string_view kPassed = "bBAzG";  // the same assertions in every dialect
  std::string out;
  while (!pattern.empty()) {
    if (pattern[0] == '[') {
      FL_ASSIGN(const CharClass found, CharClass::parse_bracket(pattern));
      FL_ASSIGN(const std::string text, found.to_pcre2());
      out += text;
    } else if (pattern[0] == '\\' && pattern.size() > 1 &&
               kPassed.find(pattern[1]) != std::string_view::npos) {
      out += pattern.substr(0, 2);
      pattern.remove_prefix(2);
    } else if (pattern[0] == '\\') {
      FL_ASSIGN(const CharClass found, CharClass::parse_escape(pattern));
      FL_ASSIGN(const std::string text, found.to_pcre2());
      out += text;
    } else {
      if (!is_known_group(pattern)) {
        return Error{"a group that begins with " + quote_text(pattern.substr(0, 4)) + " is not known"};
      }
      out += pattern[0];
      pattern.remove_prefix(1);
    }
  }
  return out;
}

void SplitRegex::FreeCode::operator()(void* code) const { pcre2_code_free(static_cast<pcre2_code*>(code)); }

void SplitRegex::Matcher::FreeData::operator()(void* data) const {
  pcre2_match_data_free(static_cast<pcre2_match_data*>(data));
}

void SplitRegex::Matcher::FreeContext::operator()(void* context) const {
  pcre2_match_context_free(static_cast<pcre2_match_context*>(context));
}

void SplitRegex::Matcher::FreeStack::operator()(void* stack) const {
  pcre2_jit_stack_free(static_cast<pcre2_jit_stack*>(stack));
}

Result<SplitRegex> SplitRegex::compile(std::string_view pattern) {
  const auto rewritten = to_pcre2(pattern);
  if (!rewritten) return Error{"split pattern: " + rewritten.error().message};
  int code = 0;
  PCRE2_SIZE offset = 0;
  SplitRegex regex;
  regex.code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(rewritten->data()), rewritten->size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_USE_OFFSET_LIMIT, &code,
                                  &offset, nullptr));
  if (regex.code_ == nullptr) {
    return Error{"split pattern: " + pcre2_message(code) + " at offset " + std::to_string(offset) +
                 " of its PCRE2 form"};
  }
  // Without a just-in-time compiler, or where it declines, the interpreter gives the same matches.
  (void)pcre2_jit_compile(static_cast<pcre2_code*>(regex.code_.get()), PCRE2_JIT_COMPLETE);
  return regex;
}

SplitRegex::Matcher::Matcher(const SplitRegex& regex)
    : regex_(&regex),
      data_(pcre2_match_data_create(1, nullptr)),  // one pair: only the whole match
      stack_(pcre2_jit_stack_create(32 * 1024, kJitStack, nullptr)),
      context_(pcre2_match_context_create(nullptr)) {
  if (data_ == nullptr || context_ == nullptr) throw std::bad_alloc();
  auto* context = static_cast<pcre2_match_context*>(context_.get());
  pcre2_set_match_limit(context, kMatchLimit);
  pcre2_set_heap_limit(context, kHeapLimit);
  // No stack (no just-in-time compiler on this machine) leaves the interpreter.
  if (stack_ != nullptr) pcre2_jit_stack_assign(context, nullptr, stack_.get());
}

Result<std::optional<SplitProgram::Match>> SplitRegex::Matcher::find(std::string_view text,
                                                                     std::size_t from) {
  auto* data = static_cast<pcre2_match_data*>(data_.get());
  const auto match = [&](std::uint32_t options) {
    return pcre2_match(static_cast<const pcre2_code*>(regex_->code_.get()),
                       reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                       PCRE2_NO_UTF_CHECK | options, data, static_cast<pcre2_match_context*>(context_.get()));
  };
  // Each attempt may look through the whole rest of the text, so a search is cut into windows of starting
  // places, and the clock is read after each: only a pattern that no tokenizer has comes near the limit.
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  int count = PCRE2_ERROR_NOMATCH;
  const std::size_t first = from;
  for (std::size_t start = from; count == PCRE2_ERROR_NOMATCH && start <= text.size(); start += kWindow) {
    // A window must not begin inside a character.
    while (start < text.size() && (static_cast<unsigned char>(text[start]) & 0xC0U) == 0x80U) --start;
    from = start;
    pcre2_set_offset_limit(static_cast<pcre2_match_context*>(context_.get()), start + kWindow);
    count = match(0);
    if (count == PCRE2_ERROR_JIT_STACKLIMIT) count = match(PCRE2_NO_JIT);
    if (spent_ + (Clock::now() - begin) > time_limit(text.size())) {
      return Error{"split pattern: takes too long on a text of " + std::to_string(text.size()) + " bytes"};
    }
  }
  from = first;
  spent_ += Clock::now() - begin;
  if (count == PCRE2_ERROR_NOMATCH) return std::optional<SplitProgram::Match>();
  if (count < 0) {
    return Error{"split pattern: " + pcre2_message(count) + " at byte " + std::to_string(from)};
  }
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data);
  // \K can put the start behind the end, or before where the search began.
  if (ends[0] > ends[1] || ends[0] < from) return Error{"split pattern: a match ends before it begins"};
  return std::optional(SplitProgram::Match{ends[0], ends[1]});
}

}  // namespace firstlight
