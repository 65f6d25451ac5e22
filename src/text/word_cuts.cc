#include "text/word_cuts.h"

#include <algorithm>

#include "text/unicode.h"

namespace firstlight {
namespace {

constexpr std::string_view kMark = "\xE2\x96\x81";  // U+2581
constexpr char32_t kMarkCode = 0x2581;

/// The character before the mark that begins at `mark`.
char32_t before(std::string_view text, std::size_t mark) {
  std::size_t start = previous_start(text, mark);
  return next_code_point(text, start);
}

}  // namespace

WordCuts::WordCuts(const TokenizerJsonFile& file, const Vocabulary& vocabulary,
                   const std::vector<bool>& stand_ins) {
  if (vocabulary.find(kMark) == Vocabulary::kNone) return;
  for (const auto& merge : file.merges) {
    if (stand_ins[static_cast<std::size_t>(merge.left)] || stand_ins[static_cast<std::size_t>(merge.right)])
      return;
    const std::string_view text = file.token(merge.result);
    for (std::size_t mark = text.find(kMark, 1); mark != std::string_view::npos;
         mark = text.find(kMark, mark + 1)) {
      joined_.push_back(before(text, mark));
    }
  }
  std::sort(joined_.begin(), joined_.end());
  joined_.erase(std::unique(joined_.begin(), joined_.end()), joined_.end());
  std::erase(joined_, kMarkCode);
  cuts_ = true;
}

std::size_t WordCuts::first_part(std::string_view piece) const {
  if (!cuts_) return piece.size();
  for (std::size_t mark = piece.find(kMark, 1); mark != std::string_view::npos;
       mark = piece.find(kMark, mark + 1)) {
    const char32_t c = before(piece, mark);
    if (c != kMarkCode && !std::binary_search(joined_.begin(), joined_.end(), c)) return mark;
  }
  return piece.size();
}

}  // namespace firstlight
