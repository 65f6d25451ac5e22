// JSON lines: one JSON object a line, each with an "id", read one by one.
#pragma once

#include <cstddef>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace firstlight {

/// The lines of a file, whatever its size.
class JsonlReader {
 public:
  static constexpr std::size_t kMaxLineBytes = std::size_t{256} << 20;

  /// "-" is standard input.
  static Result<JsonlReader> open(const std::string& path);

  /// Puts the next line that is not blank into `line`, without its end; false at the end of the file.
  Result<bool> next(std::string& line);

  /// "rows.jsonl:3", the line that next() gave last, for messages.
  [[nodiscard]] std::string place() const { return path_ + ":" + std::to_string(number_); }

 private:
  struct Close {
    void operator()(std::FILE* file) const {
      if (file != stdin) std::fclose(file);
    }
  };

  /// Reads the next block; whether the file is at its end.
  Result<bool> fill();

  std::unique_ptr<std::FILE, Close> file_;
  std::string block_;
  std::size_t at_ = 0;  // in block_
  std::string path_;
  std::size_t number_ = 0;
};

/// A row as an object that has an "id" (a text or a number). `place` begins every error message.
Result<nlohmann::ordered_json> parse_row(std::string_view line, const std::string& place);

}  // namespace firstlight
