#include "checkpoint/name_pattern.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/json_limits.h"

namespace firstlight {

namespace {

// Published patterns have some 50 bytes; nesting is walked recursively.
constexpr std::size_t kLongestPattern = 1000;
constexpr int kDeepest = 32;
// Each is tried on every packed tensor. Published lists have some hundred; plain names are not counted.
constexpr std::size_t kMostPatterns = 4096;

using Positions = NamePattern::Positions;
using Letters = std::bitset<256>;

std::size_t index_of(char c) { return static_cast<unsigned char>(c); }

}  // namespace

/// A sequence of items, or alternatives of sequences.
struct NamePattern::Node {
  enum class Kind { kLetter, kSequence, kAlternatives, kRepeat, kEnd };
  Kind kind = Kind::kSequence;
  Letters letters = {};             // kLetter: one of these
  std::vector<Node> children = {};  // kRepeat: one
  bool may_be_absent = false;       // kRepeat: `*` and `?`
  bool many = false;                // kRepeat: `*` and `+`

  /// Where a match may end that begins at one of `from`.
  [[nodiscard]] Positions match(std::string_view name, const Positions& from) const {
    Positions to;
    switch (kind) {
      case Kind::kLetter:
        for (std::size_t i = 0; i < name.size(); ++i) {
          if (from[i] && letters[index_of(name[i])]) to.set(i + 1);
        }
        return to;
      case Kind::kEnd:
        to[name.size()] = from[name.size()];
        return to;
      case Kind::kSequence:
        to = from;
        for (const Node& child : children) to = to.none() ? to : child.match(name, to);
        return to;
      case Kind::kAlternatives:
        for (const Node& child : children) to |= child.match(name, from);
        return to;
      case Kind::kRepeat:
        return repeat(name, from);
    }
    return to;
  }

  /// Whether a group is repeated in it.
  [[nodiscard]] bool repeats_groups() const {
    if (kind == Kind::kRepeat && children.front().kind != Kind::kLetter) return true;
    return std::ranges::any_of(children, &Node::repeats_groups);
  }

 private:
  [[nodiscard]] Positions repeat(std::string_view name, const Positions& from) const {
    const Node& child = children.front();
    Positions to = may_be_absent ? from : Positions();
    if (child.kind == Kind::kLetter && many) {  // ".*", in one go
      bool open = false;
      for (std::size_t i = 0; i < name.size(); ++i) {
        open = (open || from[i]) && child.letters[index_of(name[i])];
        if (open) to.set(i + 1);
      }
      return to;
    }
    Positions reached = from;
    do {  // each round but the last adds a position
      reached = child.match(name, reached) & ~to;
      to |= reached;
    } while (many && reached.any());
    return to;
  }
};

namespace {

using Node = NamePattern::Node;

/// Recursive descent over the pattern; the first thing that is not understood ends it.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Node> parse() {
    if (text_.size() > kLongestPattern) return Error{"is longer than any real one"};
    if (take('^')) {
    }  // where matches begin anyway
    Node root = alternatives(0);
    if (problem_.empty() && at_ < text_.size()) refuse();
    if (!problem_.empty()) return Error{problem_};
    return root;
  }

 private:
  bool take(char c) {
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void refuse() {
    if (!problem_.empty()) return;
    problem_ = "is not understood at " +
               (at_ < text_.size() ? quote_text(text_.substr(at_, 20)) : std::string("its end"));
  }

  Node alternatives(int depth) {
    Node node{.kind = Node::Kind::kAlternatives};
    if (depth > kDeepest) refuse();
    do {
      node.children.push_back(sequence(depth));
    } while (problem_.empty() && take('|'));
    return node;
  }

  Node sequence(int depth) {
    Node node{.kind = Node::Kind::kSequence};
    while (problem_.empty() && at_ < text_.size() && text_[at_] != '|' && text_[at_] != ')') {
      Node item = this->item(depth);
      while (problem_.empty() && at_ < text_.size() &&
             (text_[at_] == '*' || text_[at_] == '+' || text_[at_] == '?')) {
        // "a**", "a*?"; and "((ab)*c)*", which would take quadratic time
        if (item.kind == Node::Kind::kRepeat || item.kind == Node::Kind::kEnd || item.repeats_groups()) {
          refuse();
          break;
        }
        const char sign = text_[at_++];
        Node repeat{.kind = Node::Kind::kRepeat, .may_be_absent = sign != '+', .many = sign != '?'};
        repeat.children.push_back(std::move(item));
        item = std::move(repeat);
      }
      node.children.push_back(std::move(item));
    }
    return node;
  }

  Node item(int depth) {
    if (take('(')) {
      take_text("?:");
      Node group = alternatives(depth + 1);
      if (!take(')')) refuse();
      return group;
    }
    if (take('$')) return {.kind = Node::Kind::kEnd};
    Node letter{.kind = Node::Kind::kLetter};
    if (take('.')) {
      letter.letters.set();
    } else if (take('[')) {
      letter.letters = letter_class();
    } else if (take('\\')) {
      letter.letters = escaped();
    } else if (std::string_view("*+?{}]^").find(text_[at_]) != std::string_view::npos) {
      refuse();
    } else {
      letter.letters.set(index_of(text_[at_++]));
    }
    return letter;
  }

  void take_text(std::string_view what) {
    if (text_.substr(at_).starts_with(what)) at_ += what.size();
  }

  /// Behind a backslash.
  Letters escaped() {
    Letters letters;
    if (at_ == text_.size()) {
      refuse();
    } else if (take('d')) {
      for (char c = '0'; c <= '9'; ++c) letters.set(index_of(c));
    } else if (take('w')) {
      for (int c = 0; c < 128; ++c) letters[static_cast<std::size_t>(c)] = std::isalnum(c) != 0 || c == '_';
    } else if (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0) {
      refuse();
    } else {
      letters.set(index_of(text_[at_++]));
    }
    return letters;
  }

  /// Behind "[".
  Letters letter_class() {
    Letters letters;
    const bool inverted = take('^');
    while (at_ < text_.size() && text_[at_] != ']') {
      if (take('\\')) {
        letters |= escaped();
        continue;
      }
      const char first = text_[at_++];
      char last = first;
      if (at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']') {
        last = text_[at_ + 1];
        at_ += 2;
      }
      for (std::size_t c = index_of(first); c <= index_of(last); ++c) letters.set(c);
    }
    if (!take(']')) refuse();
    return inverted ? ~letters : letters;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string problem_;
};

}  // namespace

Result<NamePattern> NamePattern::regex(std::string_view pattern) {
  FL_ASSIGN(Node root, Parser(pattern).parse());
  NamePattern compiled;
  compiled.root_ = std::make_shared<const Node>(std::move(root));
  return compiled;
}

NamePattern NamePattern::glob(std::string_view pattern) {
  Node root{.kind = Node::Kind::kSequence};
  for (const char c : pattern) {
    Node letter{.kind = Node::Kind::kLetter};
    if (c != '*') {
      letter.letters.set(index_of(c));
      root.children.push_back(std::move(letter));
      continue;
    }
    letter.letters.set();
    Node any{.kind = Node::Kind::kRepeat, .may_be_absent = true, .many = true};
    any.children.push_back(std::move(letter));
    root.children.push_back(std::move(any));
  }
  NamePattern compiled;
  compiled.root_ = std::make_shared<const Node>(std::move(root));
  return compiled;
}

NamePattern::Positions NamePattern::ends(std::string_view name) const {
  if (name.size() > kLongestMatched) return {};
  Positions begin;
  begin.set(0);
  return root_->match(name, begin);
}

Result<ModuleList> ModuleList::create(const std::vector<std::string>& entries) {
  ModuleList list;
  for (const std::string& entry : entries) {
    if (entry.starts_with("re:")) {
      auto pattern = NamePattern::regex(std::string_view(entry).substr(3));
      if (!pattern.ok()) {
        return Error{"config.json: quantization_config's list of modules has " + quote_text(entry) +
                     ", which " + pattern.error().message};
      }
      list.patterns_.push_back({entry, std::move(*pattern), true});
    } else if (entry.find('*') != std::string::npos) {
      if (entry.size() > kLongestPattern) {
        return Error{"config.json: quantization_config's list of modules has " + quote_text(entry) +
                     ", which is longer than any real one"};
      }
      list.patterns_.push_back({entry, NamePattern::glob(entry), false});
    } else {
      list.exact_.push_back(entry);
    }
  }
  if (list.patterns_.size() > kMostPatterns) {
    return Error{"config.json: quantization_config's list of modules has " +
                 std::to_string(list.patterns_.size()) + " patterns, at most " +
                 std::to_string(kMostPatterns) + " are accepted"};
  }
  std::sort(list.exact_.begin(), list.exact_.end());
  return list;
}

const std::string* ModuleList::covering(std::string_view tensor) const {
  const std::string_view module = tensor.substr(0, std::min(tensor.rfind('.'), tensor.size()));
  const auto exact = [this](std::string_view path) -> const std::string* {
    const auto it = std::lower_bound(exact_.begin(), exact_.end(), path);
    return it != exact_.end() && *it == path ? &*it : nullptr;
  };
  for (std::size_t i = 0; i <= module.size(); ++i) {
    if (i < module.size() && module[i] != '.') continue;
    if (const std::string* found = exact(module.substr(0, i))) return found;  // from the left
    if (i < module.size()) {
      if (const std::string* found = exact(module.substr(i + 1))) return found;  // from the right
    }
  }
  for (const Entry& entry : patterns_) {
    const NamePattern::Positions ends = entry.pattern.ends(module);
    if (entry.regex ? ends.any() : ends[std::min(module.size(), kLongestMatched)]) return &entry.text;
    for (std::size_t i = 0; !entry.regex && i < std::min(module.size(), kLongestMatched); ++i) {
      if (module[i] == '.' && ends[i]) return &entry.text;
    }
  }
  return nullptr;
}

}  // namespace firstlight
