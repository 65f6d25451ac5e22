// Many problems of one kind, shown as one line: an exact count, the first few in full.
#pragma once

#include <cstddef>
#include <string>

namespace firstlight {

class ProblemList {
 public:
  explicit ProblemList(std::string kind) : kind_(std::move(kind)) {}

  /// True while a further item would be shown: lets the caller skip the work of describing it.
  [[nodiscard]] bool shows_next() const { return shown_ < kShown; }
  void add(const std::string& item) {
    if (shows_next()) items_ += (shown_++ == 0 ? "" : "; ") + item;
    ++count_;
  }
  /// Items that are counted but not named.
  void add_unshown(std::size_t items) { count_ += items; }

  [[nodiscard]] std::size_t count() const { return count_; }

  /// "\n  missing tensors (23): a; b; and 21 more", or nothing.
  [[nodiscard]] std::string line() const {
    if (count_ == 0) return {};
    const std::string more = count_ > shown_ ? "; and " + std::to_string(count_ - shown_) + " more" : "";
    return "\n  " + kind_ + " (" + std::to_string(count_) + "): " + items_ + more;
  }

 private:
  static constexpr std::size_t kShown = 20;  // fits a terminal; a wrong prefix makes half a million items

  std::string kind_;
  std::string items_;
  std::size_t count_ = 0;
  std::size_t shown_ = 0;
};

}  // namespace firstlight
