#include "text/normal_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "text/unicode.h"

namespace firstlight {
namespace {

using CodePoints = std::vector<utf8proc_int32_t>;

constexpr char32_t kCodePoints = 0x110000;
constexpr std::size_t kLongestDecomposition = 32;  // 18 code points in Unicode 15

bool composes(NormalForm form) { return form == NormalForm::kNfc || form == NormalForm::kNfkc; }
bool is_compatible(NormalForm form) { return form == NormalForm::kNfkc || form == NormalForm::kNfkd; }

bool is_starter(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class == 0; }

std::span<const utf8proc_int32_t> decomposed(NormalForm form, char32_t c,
                                             std::array<utf8proc_int32_t, kLongestDecomposition>& buffer) {
  int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
  if (is_compatible(form)) options |= UTF8PROC_COMPAT;
  int last_boundclass = 0;
  const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), buffer.data(),
                                             static_cast<utf8proc_ssize_t>(buffer.size()),
                                             static_cast<utf8proc_option_t>(options), &last_boundclass);
  check(count > 0 && static_cast<std::size_t>(count) <= buffer.size(), "a decomposition fits");
  return {buffer.data(), static_cast<std::size_t>(count)};
}

/// For each code point whether it is certain to stay as it is and to let the text before it be normalised by
/// itself: a starter without decomposition that composes with nothing before it.
class InertSet {
 public:
  explicit InertSet(NormalForm form) : bits_(kCodePoints / 64, ~std::uint64_t{0}) {
    std::array<utf8proc_int32_t, kLongestDecomposition> buffer{};
    for (char32_t c = 0; c < kCodePoints; ++c) {
      if (c >= 0xD800 && c < 0xE000) continue;
      const auto parts = decomposed(form, c, buffer);
      const bool changes = parts.size() != 1 || parts[0] != static_cast<utf8proc_int32_t>(c);
      if (!is_starter(static_cast<utf8proc_int32_t>(c))) remove(c);
      if (!changes) continue;
      if (!composes(form) || !recomposes(parts, c)) remove(c);
      // What follows the first character of some decomposition may compose with what stands before it.
      for (const utf8proc_int32_t part : parts.subspan(1)) remove(static_cast<char32_t>(part));
    }
  }
  [[nodiscard]] bool contains(char32_t c) const { return ((bits_[c / 64] >> (c % 64)) & 1) != 0; }

 private:
  static bool recomposes(std::span<const utf8proc_int32_t> parts, char32_t c) {
    CodePoints copy(parts.begin(), parts.end());
    const auto size =
        utf8proc_normalize_utf32(copy.data(), static_cast<utf8proc_ssize_t>(copy.size()),
                                 static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    return size == 1 && copy[0] == static_cast<utf8proc_int32_t>(c);
  }
  void remove(char32_t c) { bits_[c / 64] &= ~(std::uint64_t{1} << (c % 64)); }

  std::vector<std::uint64_t> bits_;
};

const InertSet& inert_set(NormalForm form) {
  switch (form) {
    case NormalForm::kNfc: {
      static const InertSet set(NormalForm::kNfc);
      return set;
    }
    case NormalForm::kNfd: {
      static const InertSet set(NormalForm::kNfd);
      return set;
    }
    case NormalForm::kNfkc: {
      static const InertSet set(NormalForm::kNfkc);
      return set;
    }
    case NormalForm::kNfkd:
      break;
  }
  static const InertSet set(NormalForm::kNfkd);
  return set;
}

/// Marks in a row in the order of their classes. utf8proc does this too, by exchanging neighbours: a megabyte
/// of marks would take hours.
void order_marks(CodePoints& text) {
  for (std::size_t i = 0; i < text.size();) {
    if (is_starter(text[i])) {
      ++i;
      continue;
    }
    std::size_t end = i;
    while (end < text.size() && !is_starter(text[end])) ++end;
    std::stable_sort(
        text.begin() + static_cast<std::ptrdiff_t>(i), text.begin() + static_cast<std::ptrdiff_t>(end),
        [](utf8proc_int32_t a, utf8proc_int32_t b) {
          return utf8proc_get_property(a)->combining_class < utf8proc_get_property(b)->combining_class;
        });
    i = end;
  }
}

void append_stretch(NormalForm form, std::string_view text, CodePoints& points, std::string& out) {
  points.clear();
  std::array<utf8proc_int32_t, kLongestDecomposition> buffer{};
  for (std::size_t i = 0; i < text.size();) {
    const auto parts = decomposed(form, next_code_point(text, i), buffer);
    points.insert(points.end(), parts.begin(), parts.end());
  }
  order_marks(points);
  auto size = static_cast<utf8proc_ssize_t>(points.size());
  if (composes(form)) {
    size = utf8proc_normalize_utf32(points.data(), size,
                                    static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  }
  for (const utf8proc_int32_t c : std::span(points).first(static_cast<std::size_t>(size))) {
    append_utf8(static_cast<char32_t>(c), out);
  }
}

}  // namespace

void append_normalized(NormalForm form, std::string_view text, std::string& out) {
  const InertSet& inert = inert_set(form);
  CodePoints points;
  std::size_t copied = 0;    // text before this is in `out`
  std::size_t previous = 0;  // start of the character before `i`
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t start = i;
    if (inert.contains(next_code_point(text, i))) {
      previous = start;
      continue;
    }
    // The stretch to normalise: the inert character before, and all up to the next one.
    while (i < text.size()) {
      std::size_t next = i;
      if (inert.contains(next_code_point(text, next))) break;
      i = next;
    }
    out += text.substr(copied, previous - copied);
    append_stretch(form, text.substr(previous, i - previous), points, out);
    copied = previous = i;
  }
  out += text.substr(copied);
}

}  // namespace firstlight
