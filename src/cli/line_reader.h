// Lines from a person at a terminal, with editing and history, or from a pipe.
#pragma once

#include <memory>
#include <string>

namespace firstlight {

class LineReader {
 public:
  enum class Outcome {
    kLine,
    kInterrupted,  // Ctrl-C instead of a line
    kEnd,          // Ctrl-D on an empty line, or the end of the input
  };

  virtual ~LineReader() = default;

  /// `line` is without its newline. An InterruptScope must live.
  virtual Outcome read(std::string& line) = 0;

  /// Editing where standard input and output are a terminal, plain lines without a prompt elsewhere.
  static std::unique_ptr<LineReader> open(const std::string& prompt);
};

}  // namespace firstlight
