// Checks of single flags whose messages people can read; CLI11's own name internals.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace firstlight {

inline bool is_digits(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// 0, 1, 2, … of at most 19 digits, which an unsigned 64-bit number is certain to hold.
inline CLI::Validator whole_number() {
  return {[](std::string& text) {
            return is_digits(text) && text.size() <= 19 ? ""
                                                        : "must be a whole number below 10^19, not " + text;
          },
          "", ""};
}

/// `least` … up to `most`, of which 18 digits are certain to fit.
inline CLI::Validator count(std::int64_t most = 999999999999999999, std::int64_t least = 1) {
  return {[most, least](std::string& text) {
            const bool good =
                is_digits(text) && text.size() <= 18 && std::stoll(text) >= least && std::stoll(text) <= most;
            return good ? ""
                        : "must be a whole number from " + std::to_string(least) + " to " +
                              std::to_string(most) + ", not " + text;
          },
          "", ""};
}

inline CLI::Validator one_of(std::vector<std::string> words) {
  return {[words = std::move(words)](std::string& text) {
            if (std::find(words.begin(), words.end(), text) != words.end()) return std::string();
            std::string list;
            for (const std::string& word : words) list += (list.empty() ? "" : " or ") + word;
            return "must be " + list + ", not " + text;
          },
          "", ""};
}

/// For names of files and folders: an empty one would stand for another place, or for no flag at all.
inline CLI::Validator not_empty() {
  return {[](std::string& text) { return text.empty() ? "must not be empty" : ""; }, "", ""};
}

/// What stands between the commas; as many entries as there are commas, and one more.
inline std::vector<std::string> list_entries(const std::string& text) {
  std::vector<std::string> entries(1);
  for (const char c : text) {
    if (c == ',') {
      entries.emplace_back();
    } else {
      entries.back() += c;
    }
  }
  return entries;
}

/// Entries with commas between them, each as `entry` says and none of them empty.
inline CLI::Validator list_of(CLI::Validator entry) {
  return {[entry = std::move(entry)](std::string& text) {
            for (std::string& one : list_entries(text)) {
              if (one.empty()) return "a list must not have empty entries, as \"" + text + "\" has";
              if (std::string error = entry(one); !error.empty()) return error;
            }
            return std::string();
          },
          "", ""};
}

}  // namespace firstlight
