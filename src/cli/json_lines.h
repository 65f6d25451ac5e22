// Commands that answer each line of a file by a line: JSON objects in, JSON objects out, in the same order.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "base/result.h"

namespace firstlight {

using JsonRow = nlohmann::ordered_json;

/// What one row is answered with, without its id; an Error becomes {"id": …, "error": …}.
using AnswerRow = std::function<Result<JsonRow>(const JsonRow& row)>;

/// Answers every row of `file` ("-": standard input) on standard output, in ASCII; blank lines are skipped.
/// The answer repeats the row's "id" where it has one. A row that fails does not keep the others from being
/// answered. kExitSuccess if all rows could be answered, else kExitInput.
int answer_json_lines(const std::string& file, const AnswerRow& answer);

/// A field of a row with its type checked.
Result<std::string> row_text(const JsonRow& row, const char* field);

}  // namespace firstlight
