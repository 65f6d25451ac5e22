// How Kimi's tokenizer cuts text before BPE: first at fixed lengths, then by a pattern (README.md).
#pragma once

#include <string_view>
#include <vector>

namespace firstlight {

/// In the tokenizers' dialect; alternatives in order, the leftmost that matches wins.
std::string_view kimi_split_pattern();

/// Cuts `text` into chunks of 400,000 characters, and each chunk where more than 25,000 characters in a
/// row are all white space or all not. Invalid bytes count as one character each. Both kinds of cut can
/// fall inside a word or a special token's text and then change ids, exactly as in the first-party code.
std::vector<std::string_view> kimi_precut(std::string_view text);

}  // namespace firstlight
