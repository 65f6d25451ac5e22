// firstlight tokenize: texts of a JSON-lines file to token ids.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/json_lines.h"
#include "cli/terminal.h"
#include "cli/tokenizer_folder.h"
#include "cli/validators.h"

namespace firstlight {
namespace {

struct Flags {
  std::string folder;
  std::string rows;
};

Result<JsonRow> tokenized(const Tokenizer& tokenizer, const JsonRow& row) {
  FL_ASSIGN(const std::string text, row_text(row, "text"));
  bool parse_special = false;
  if (const auto flag = row.find("parse_special"); flag != row.end()) {
    if (!flag->is_boolean()) return Error{"parse_special: expected true or false"};
    parse_special = flag->get<bool>();
  }
  std::vector<std::int32_t> ids;
  FL_TRY(tokenizer.encode(text, parse_special, ids));
  return JsonRow{{"ids", ids}};
}

int run(const Flags& flags) {
  const auto tokenizer = open_tokenizer(flags.folder);
  if (!tokenizer) return input_failure(tokenizer.error());
  return answer_json_lines(flags.rows, [&](const JsonRow& row) { return tokenized(**tokenizer, row); });
}

}  // namespace

Command add_tokenize(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("tokenize", "Turn texts into token ids, one JSON object a line");
  auto flags = std::make_shared<Flags>();
  app->add_option("DIR", flags->folder, "Folder with tokenizer files; weights are not needed")
      ->required()
      ->check(not_empty());
  app->add_option(
         "--jsonl", flags->rows,
         "Rows {\"id\", \"text\", \"parse_special\"}; \"-\": from standard input. Each is answered by "
         "{\"id\", \"ids\"}")
      ->required()
      ->check(not_empty())
      ->type_name("FILE");
  return {app, [flags] { return run(*flags); }};
}

}  // namespace firstlight
