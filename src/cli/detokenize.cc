// firstlight detokenize: token ids of a JSON-lines file to texts.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/json_lines.h"
#include "cli/terminal.h"
#include "cli/tokenizer_folder.h"
#include "cli/validators.h"
#include "text/stream_decoder.h"

namespace firstlight {
namespace {

struct Flags {
  std::string folder;
  std::string rows;
};

Result<JsonRow> detokenized(const Tokenizer& tokenizer, const JsonRow& row) {
  const auto ids = row.find("ids");
  if (ids == row.end() || !ids->is_array()) return Error{"ids: expected an array"};
  StreamDecoder decoder(tokenizer);
  std::string text;
  for (std::size_t i = 0; i < ids->size(); ++i) {
    const JsonRow& id = (*ids)[i];
    if (!id.is_number_unsigned() ||
        id.get<std::uint64_t>() >= static_cast<std::uint64_t>(tokenizer.vocab_size())) {
      return Error{"ids[" + std::to_string(i) + "]: expected an id from 0 to " +
                   std::to_string(tokenizer.vocab_size() - 1)};
    }
    decoder.push(id.get<std::int32_t>(), text);
  }
  decoder.finish(text);
  return JsonRow{{"text", text}};
}

int run(const Flags& flags) {
  const auto tokenizer = open_tokenizer(flags.folder);
  if (!tokenizer) return input_failure(tokenizer.error());
  return answer_json_lines(flags.rows, [&](const JsonRow& row) { return detokenized(**tokenizer, row); });
}

}  // namespace

Command add_detokenize(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("detokenize", "Turn token ids into texts, one JSON object a line");
  auto flags = std::make_shared<Flags>();
  app->add_option("DIR", flags->folder, "Folder with tokenizer files; weights are not needed")
      ->required()
      ->check(not_empty());
  app->add_option(
         "--jsonl", flags->rows,
         "Rows {\"id\", \"ids\"}; \"-\": from standard input. Each is answered by {\"id\", \"text\"}")
      ->required()
      ->check(not_empty())
      ->type_name("FILE");
  return {app, [flags] { return run(*flags); }};
}

}  // namespace firstlight
