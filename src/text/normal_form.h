// The four Unicode normalisation forms, in time linear in the text but for the sorting of marks.
#pragma once

#include <string>
#include <string_view>

namespace firstlight {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

/// Appends `text`, which must be valid UTF-8, in that form to `out`.
void append_normalized(NormalForm form, std::string_view text, std::string& out);

}  // namespace firstlight
