#include "cli/terminal.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "base/memory_limit.h"
#include "cli/commands.h"

namespace firstlight {
namespace {

bool wants_colours() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return is_terminal(stderr) && (no_color == nullptr || *no_color == '\0') &&
         (term == nullptr || std::string_view(term) != "dumb");
}

std::string coloured(const char* code, const std::string& text) {
  return wants_colours() ? std::string("\033[") + code + "m" + text + "\033[0m" : text;
}

std::string amount(std::int64_t n, bool bytes) {
  return bytes ? bytes_text(n) : std::to_string(n) + " tokens";
}

std::string time_text(double seconds) {
  const std::int64_t s = std::llround(seconds);
  if (s < 60) return std::to_string(s) + " s";
  if (s < 3600) return std::to_string(s / 60) + " min " + std::to_string(s % 60) + " s";
  return std::to_string(s / 3600) + " h " + std::to_string(s % 3600 / 60) + " min";
}

}  // namespace

bool is_terminal(std::FILE* stream) { return isatty(fileno(stream)) == 1; }

std::string dimmed(const std::string& text) { return coloured("2", text); }

void say(const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); }
/// A message may quote what a file says: control characters would reach the terminal, and a text may be as
/// long as the file.
std::string printable(const std::string& message) {
  constexpr std::size_t kLongest = 16000;  // bytes
  std::string text;
  for (const char c : message) {
    if (text.size() >= kLongest && (c & 0xC0) != 0x80) {
      return text + "... (" + std::to_string(message.size()) + " characters)";
    }
    const auto code = static_cast<unsigned char>(c);
    if ((code < 0x20 && c != '\n' && c != '\t') || code == 0x7F) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\x%02x", code);
      text += escape;
    } else {
      text += c;
    }
  }
  return text;
}

void say_error(const std::string& message) { say(coloured("31", "error:") + " " + printable(message)); }
void say_warning(const std::string& message) { say(coloured("33", "note:") + " " + printable(message)); }

int input_failure(const Error& error) {
  say_error(error.message);
  return kExitInput;
}

int usage_failure(const std::string& command, const Error& error) {
  say(printable(error.message) + "\nRun `firstlight " + command + " --help` for more information.");
  return kExitUsage;
}

bool write_output(std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
}

void ProgressLine::update(std::int64_t done, std::int64_t total) {
  if (total <= 0) return;
  const bool bytes = unit_ == Unit::kBytes;
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  if (!is_terminal(stderr)) {
    if (!bytes || elapsed < next_line_) return;
    while (next_line_ <= elapsed) next_line_ *= 2;
    say(what_ + ": " + std::to_string(100 * done / total) + " % of " + amount(total, bytes) + " after " +
        time_text(elapsed));
    return;
  }
  if (!bytes && elapsed < 0.5) return;  // most prompts are read in a blink
  constexpr std::int64_t kWidth = 24;   // leaves room for the numbers in 80 columns
  const std::int64_t filled = std::clamp<std::int64_t>(kWidth * done / total, 0, kWidth);
  std::string left;
  if (done > 0 && done < total && elapsed > 0.5) {  // before that the speed is a guess
    left =
        ", " + time_text(elapsed * static_cast<double>(total - done) / static_cast<double>(done)) + " left";
  }
  std::fprintf(stderr, "\r\033[K%s [%s%s] %s of %s%s", what_.c_str(),
               std::string(static_cast<std::size_t>(filled), '#').c_str(),
               std::string(static_cast<std::size_t>(kWidth - filled), '.').c_str(),
               amount(done, bytes).c_str(), amount(total, bytes).c_str(), left.c_str());
  std::fflush(stderr);
  drawn_ = true;
}

void ProgressLine::clear() {
  if (drawn_) std::fputs("\r\033[K", stderr);
  drawn_ = false;
}

}  // namespace firstlight
