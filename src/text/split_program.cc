#include "text/split_program.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <string>
#include <utility>

namespace firstlight {
namespace {

constexpr std::size_t kNone = std::string_view::npos;
constexpr std::uint32_t kUnlimited = UINT32_MAX;
constexpr std::size_t kMaxAlternatives = 32;  // bits of SplitProgram::starts_
constexpr std::size_t kMaxClasses = 48;       // each costs 9 KB
constexpr std::size_t kMaxItems = 16;         // in one alternative: the depth of the recursion

// Known patterns look at each character fewer than ten times.
constexpr std::size_t kWorkPerByte = 256;
constexpr std::size_t kFreeWork = 1 << 20;

}  // namespace

/// Recursive descent over the pattern; any form that is not accepted ends it with `false`.
class SplitProgramCompiler {
 public:
  explicit SplitProgramCompiler(std::string_view pattern) : rest_(pattern) {}

  std::optional<SplitProgram> compile() {
    do {
      if (!alternative()) return std::nullopt;
    } while (take("|"));
    if (!rest_.empty() || program_.alternatives_.size() > kMaxAlternatives) return std::nullopt;
    program_.make_starts();
    return std::move(program_);
  }

 private:
  using Item = SplitProgram::Item;
  using Kind = SplitProgram::Kind;

  bool take(std::string_view prefix) {
    if (!rest_.starts_with(prefix)) return false;
    rest_.remove_prefix(prefix.size());
    return true;
  }

  bool alternative() {
    const auto first = static_cast<std::uint32_t>(program_.items_.size());
    bool can_be_empty = true;
    while (!rest_.empty() && rest_[0] != '|') {
      if (program_.items_.size() - first == kMaxItems) return false;
      Item item;
      if (!atom(item)) return false;
      if (item.kind == Kind::kClass || item.kind == Kind::kGroup) {
        if (!quantifier(item)) return false;
        if (item.kind == Kind::kGroup && item.most != 1) return false;
        can_be_empty &= item.least == 0;
      }
      program_.items_.push_back(item);
    }
    if (can_be_empty) return false;
    program_.items_.push_back({});
    program_.alternatives_.push_back(first);
    return true;
  }

  bool atom(Item& item) {
    if (rest_.starts_with("(?!") || rest_.starts_with("(?=")) {
      item.kind = rest_[2] == '!' ? Kind::kNotAhead : Kind::kAhead;
      rest_.remove_prefix(3);
      return one_class(item.index, false) && take(")");
    }
    if (take("(?:")) return group(item, false);
    if (take("(?i:")) return group(item, true);
    if (take("$")) {
      item.kind = Kind::kLineEnd;
      return true;
    }
    item.kind = Kind::kClass;
    return one_class(item.index, false);
  }

  bool group(Item& item, bool fold) {
    SplitProgram::Group group;
    do {
      std::vector<std::uint32_t> member;
      while (!rest_.empty() && rest_[0] != '|' && rest_[0] != ')') {
        std::uint32_t index = 0;
        if (!one_class(index, fold)) return false;
        member.push_back(index);
      }
      if (member.empty() || member.size() > kMaxItems) return false;
      group.members.push_back(std::move(member));
    } while (take("|"));
    if (!take(")") || group.members.size() > kMaxAlternatives) return false;
    item.kind = Kind::kGroup;
    item.index = static_cast<std::uint32_t>(program_.groups_.size());
    program_.groups_.push_back(std::move(group));
    return true;
  }

  /// A class, an escape or one plain character.
  bool one_class(std::uint32_t& index, bool fold) {
    constexpr std::string_view kSyntax = "()|?*+{}.^$]";
    if (rest_.empty() || kSyntax.find(rest_[0]) != std::string_view::npos) return false;
    const std::string_view before = rest_;
    CharClass found;
    if (rest_[0] == '[') {
      auto parsed = CharClass::parse_bracket(rest_, fold);
      if (!parsed) return false;
      found = std::move(*parsed);
    } else if (rest_[0] == '\\') {
      auto parsed = CharClass::parse_escape(rest_, fold);
      if (!parsed) return false;
      found = std::move(*parsed);
    } else {
      std::size_t length = 0;
      found = CharClass::of(next_code_point(rest_, length), fold);
      rest_.remove_prefix(length);
    }
    if (!found.is_known()) return false;
    const std::string key = (fold ? "i" : "c") + std::string(before.substr(0, before.size() - rest_.size()));
    const auto known = std::find(keys_.begin(), keys_.end(), key);
    index = static_cast<std::uint32_t>(known - keys_.begin());
    if (known != keys_.end()) return true;
    if (keys_.size() == kMaxClasses) return false;
    keys_.push_back(key);
    program_.classes_.emplace_back(std::move(found));
    return true;
  }

  bool quantifier(Item& item) {
    if (take("?")) {
      item.least = 0;
    } else if (take("*")) {
      item.least = 0;
      item.most = kUnlimited;
    } else if (take("+")) {
      item.most = kUnlimited;
    } else if (rest_.starts_with('{')) {
      if (!counts(item)) return false;
    } else {
      return true;
    }
    if (rest_.starts_with('?')) return false;  // lazy
    item.possessive = take("+");
    return rest_.empty() || (rest_[0] != '*' && rest_[0] != '?' && rest_[0] != '{');
  }

  bool counts(Item& item) {
    rest_.remove_prefix(1);
    if (!number(item.least)) return false;
    item.most = item.least;
    if (take(",")) {
      item.most = kUnlimited;
      if (!rest_.starts_with('}') && !number(item.most)) return false;
    }
    // "{1,3}+" is possessive to some dialects and a second quantifier to others.
    return take("}") && item.most >= item.least && item.most != 0 && !rest_.starts_with('+');
  }

  bool number(std::uint32_t& value) {
    const auto parsed = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (parsed.ec != std::errc{} || value > 1000) return false;
    rest_.remove_prefix(static_cast<std::size_t>(parsed.ptr - rest_.data()));
    return true;
  }

  std::string_view rest_;
  SplitProgram program_;
  std::vector<std::string> keys_;  // how each class is written
};

std::optional<SplitProgram> SplitProgram::compile(std::string_view pattern) {
  return SplitProgramCompiler(pattern).compile();
}

bool SplitProgram::can_start(std::uint32_t alternative, char32_t c) const {
  for (std::uint32_t i = alternatives_[alternative];; ++i) {
    const Item& item = items_[i];
    if (item.kind == Kind::kClass) {
      if (classes_[item.index].contains(c)) return true;
      if (item.least != 0) return false;
    } else if (item.kind == Kind::kGroup) {
      for (const auto& member : groups_[item.index].members) {
        if (classes_[member[0]].contains(c)) return true;
      }
      if (item.least != 0) return false;
    } else if (item.kind == Kind::kAccept) {
      return false;
    }
  }
}

void SplitProgram::make_starts() {
  for (char32_t c = 0; c < starts_.size(); ++c) {
    for (std::uint32_t a = 0; a < alternatives_.size(); ++a) {
      if (can_start(a, c)) starts_[c] |= std::uint32_t{1} << a;
    }
  }
}

std::size_t SplitProgram::Matcher::repeat(std::uint32_t item, std::string_view text, std::size_t position) {
  const Item& it = program_->items_[item];
  const CharSet& set = program_->classes_[it.index];
  std::size_t count = 0;
  std::size_t end = set.run_end(text, position, it.most, count);
  work_ += count + 1;
  if (count < it.least) return kNone;
  for (;;) {
    const std::size_t found = rest(item + 1, text, end);
    if (found != kNone || it.possessive || count == it.least || work_ > limit_) return found;
    end = previous_start(text, end);
    --count;
  }
}

std::size_t SplitProgram::Matcher::rest(std::uint32_t item, std::string_view text, std::size_t position) {
  const Item& it = program_->items_[item];
  ++work_;
  switch (it.kind) {
    case Kind::kAccept:
      return position;
    case Kind::kClass:
      return repeat(item, text, position);
    case Kind::kLineEnd:
      return position == text.size() || text[position] == '\n' ? rest(item + 1, text, position) : kNone;
    case Kind::kAhead:
    case Kind::kNotAhead: {
      bool ahead = false;
      if (position < text.size()) {
        std::size_t next = position;
        ahead = program_->classes_[it.index].contains(next_code_point(text, next));
      }
      return ahead == (it.kind == Kind::kAhead) ? rest(item + 1, text, position) : kNone;
    }
    case Kind::kGroup:
      break;
  }
  for (const auto& member : program_->groups_[it.index].members) {
    std::size_t end = position;
    for (const std::uint32_t index : member) {
      if (end == text.size() || !program_->classes_[index].contains(next_code_point(text, end))) {
        end = kNone;
        break;
      }
    }
    if (end == kNone) continue;
    const std::size_t found = rest(item + 1, text, end);
    if (found != kNone || it.possessive) return found;
  }
  return it.least == 0 ? rest(item + 1, text, position) : kNone;
}

std::size_t SplitProgram::Matcher::run(std::uint32_t alternative, std::string_view text, std::size_t begin) {
  if (begin < hopeless_[alternative]) return kNone;
  const std::uint32_t first = program_->alternatives_[alternative];
  const std::size_t end = rest(first, text, begin);
  const Item& item = program_->items_[first];
  if (end == kNone && item.kind == Kind::kClass && item.most == kUnlimited) {
    std::size_t count = 0;
    hopeless_[alternative] = program_->classes_[item.index].run_end(text, begin, kUnlimited, count);
  }
  return end;
}

Result<std::optional<SplitProgram::Match>> SplitProgram::Matcher::find(std::string_view text,
                                                                       std::size_t from) {
  const auto count = static_cast<std::uint32_t>(program_->alternatives_.size());
  if (from == 0) std::fill(hopeless_.begin(), hopeless_.end(), 0);
  limit_ = kFreeWork + kWorkPerByte * (bytes_ + text.size() - from);
  const auto all = static_cast<std::uint32_t>((std::uint64_t{1} << count) - 1);
  for (std::size_t begin = from; begin < text.size();) {
    const auto byte = static_cast<std::uint8_t>(text[begin]);
    for (std::uint32_t open = byte < 0x80 ? program_->starts_[byte] : all; open != 0; open &= open - 1) {
      const std::size_t end = run(static_cast<std::uint32_t>(std::countr_zero(open)), text, begin);
      if (work_ > limit_) return Error{"the split pattern needs too much work for this text"};
      if (end == kNone) continue;
      bytes_ += end - from;
      return std::optional(Match{begin, end});
    }
    ++work_;
    next_code_point(text, begin);
  }
  bytes_ += text.size() - from;
  return std::optional<Match>();
}

}  // namespace firstlight
