#include "cli/json_lines.h"

#include <cstddef>
#include <utility>

#include "base/jsonl.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"

namespace firstlight {
namespace {

constexpr std::size_t kFlushFrom = std::size_t{1} << 16;

Result<JsonRow> answer_of(const std::string& line, const std::string& place, const AnswerRow& answer,
                          JsonRow& id) {
  FL_ASSIGN(const JsonRow row, parse_row(line, place));
  id = row["id"];
  return answer(row);
}

int answer_rows(JsonlReader& reader, bool at_once, const AnswerRow& answer) {
  const InterruptScope interrupt;
  std::string line;
  std::string out;
  std::size_t failures = 0;
  std::size_t rows = 0;
  for (;; ++rows) {
    if (InterruptScope::requested()) return kExitInterrupted;
    const auto more = reader.next(line);
    if (!more) return input_failure(more.error());
    if (!*more) break;
    JsonRow answered = {{"id", nullptr}};
    auto result = answer_of(line, reader.place(), answer, answered["id"]);
    if (result) {
      for (auto& [key, value] : result->items()) answered[key] = std::move(value);
    } else {
      answered["error"] = result.error().message;
      ++failures;
    }
    out += answered.dump(-1, ' ', /*ensure_ascii=*/true, JsonRow::error_handler_t::replace) + "\n";
    if (!at_once && out.size() < kFlushFrom) continue;
    if (!write_output(out)) return input_failure(Error{"standard output: cannot be written"});
    out.clear();
  }
  if (!write_output(out)) return input_failure(Error{"standard output: cannot be written"});
  if (failures == 0) return kExitSuccess;
  return input_failure(Error{std::to_string(failures) + " of " + std::to_string(rows) + " rows failed"});
}

}  // namespace

int answer_json_lines(const std::string& file, const AnswerRow& answer) {
  auto reader = JsonlReader::open(file);
  if (!reader) return input_failure(reader.error());
  // Whoever feeds rows one by one waits for each answer.
  return answer_rows(*reader, /*at_once=*/file == "-", answer);
}

Result<std::string> row_text(const JsonRow& row, const char* field) {
  const auto found = row.find(field);
  if (found == row.end() || !found->is_string()) return Error{std::string(field) + ": expected a string"};
  return found->get<std::string>();
}

}  // namespace firstlight
