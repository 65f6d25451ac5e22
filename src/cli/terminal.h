// What people see besides the answer: messages and progress, all on standard error.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include "base/result.h"

namespace firstlight {

[[nodiscard]] bool is_terminal(std::FILE* stream);

/// `text`, dimmed where standard error is a terminal that wants colours (NO_COLOR is honoured).
std::string dimmed(const std::string& text);

/// One line on standard error.
void say(const std::string& line);
/// The same as an error or warning of the program.
/// The message with control characters escaped, and cut when it is longer than anybody reads.
std::string printable(const std::string& message);
void say_error(const std::string& message);
void say_warning(const std::string& message);

/// Prints the error; kExitInput or kExitUsage.
int input_failure(const Error& error);
int usage_failure(const std::string& command, const Error& error);

/// Writes and flushes; false if standard output cannot take it.
[[nodiscard]] bool write_output(std::string_view text);

/// How far a long piece of work is, on standard error: on a terminal a line that is drawn over and over and
/// vanishes at the end; elsewhere, for loading, a line when it has taken a second, and one each time that
/// time has doubled.
class ProgressLine {
 public:
  enum class Unit { kBytes, kTokens };

  ProgressLine(std::string what, Unit unit) : what_(std::move(what)), unit_(unit) {}
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void update(std::int64_t done, std::int64_t total);
  void clear();

 private:
  std::string what_;
  Unit unit_;
  bool drawn_ = false;
  double next_line_ = 1;  // seconds; where standard error is no terminal
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace firstlight
