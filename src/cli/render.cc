// firstlight render: conversations to prompts, by a checkpoint's chat template or a chat format. No weights.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "base/json_limits.h"
#include "base/jsonl.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "cli/validators.h"
#include "python/chat_format.h"
#include "python/models_folder.h"

namespace firstlight {
namespace {

using Json = nlohmann::ordered_json;

struct Flags {
  std::string source;  // a checkpoint folder or a template file; may be empty with a format
  std::string rows;
  std::string format;
  bool segments = false;
};

/// Chat formats are the files of models/chat.
Status check_format(const std::string& name) {
  std::set<std::string> known;
  std::error_code ignored;
  for (const auto& file : std::filesystem::directory_iterator(models_folder() / "chat", ignored)) {
    if (file.path().extension() == ".py") known.insert(file.path().stem());
  }
  if (known.contains(name)) return {};
  std::string list;
  for (const std::string& one : known) list += (list.empty() ? "" : ", ") + one;
  return Error{"there is no chat format " + quote_text(name) + "; there are: " + list};
}

Result<ChatFormat> open_format(const Flags& flags) {
  if (flags.source.empty()) return ChatFormat::named(flags.format);
  std::error_code ignored;
  const bool folder = std::filesystem::is_directory(flags.source, ignored);
  auto format = folder ? ChatFormat::load(flags.source) : ChatFormat::load_template(flags.source);
  if (flags.format.empty()) return format;
  if (!format)
    return folder ? Result(ChatFormat::named(flags.format)) : format;  // the folder need not have a template
  format->set_format(flags.format);
  return format;
}

const char* kind_name(RenderFailure::Kind kind) {
  switch (kind) {
    case RenderFailure::Kind::kRefused:
      return "raise_exception";
    case RenderFailure::Kind::kLimit:
      return "limit";
    case RenderFailure::Kind::kFailed:
      break;
  }
  return "runtime";
}

Json render_row(const ChatFormat& format, const Flags& flags, const Json& row, const std::string& line) {
  const bool has_tools = row.contains("tools") && !row["tools"].is_null();
  RenderFailure failure;
  const auto prompt = format.render(line, has_tools, {}, &failure);
  if (!prompt) {
    if (failure.message.empty()) failure.message = prompt.error().message;
    return {{"id", row["id"]}, {"error", {{"kind", kind_name(failure.kind)}, {"message", failure.message}}}};
  }
  Json result = {{"id", row["id"]}, {"rendered", prompt->text()}};
  if (flags.segments) {
    result["segments"] = Json::array();
    for (const PromptPart& part : prompt->parts) {
      result["segments"].push_back({{"text", part.text}, {"allow_special", !part.literal}});
    }
  }
  return result;
}

Status run(const Flags& flags) {
  FL_ASSIGN(const ChatFormat format, open_format(flags));
  FL_ASSIGN(JsonlReader reader, JsonlReader::open(flags.rows));
  std::size_t bad_lines = 0;
  for (std::string line;;) {
    FL_ASSIGN(const bool more, reader.next(line));
    if (!more) break;
    const auto row = parse_row(line, reader.place());
    if (!row) ++bad_lines;
    const Json result =
        row ? render_row(format, flags, *row, line)
            : Json{{"id", nullptr}, {"error", {{"kind", "row"}, {"message", row.error().message}}}};
    if (!write_output(result.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace) + "\n")) {
      return Error{"standard output: cannot be written"};
    }
  }
  if (bad_lines != 0) return Error{flags.rows + ": lines that are no rows: " + std::to_string(bad_lines)};
  return {};
}

}  // namespace

Command add_render(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("render", "Turn conversations into prompts, without weights");
  auto flags = std::make_shared<Flags>();
  CLI::Option* source =
      app->add_option("SOURCE", flags->source, "Checkpoint folder, or a template file (.jinja)")
          ->check(not_empty());
  app->add_option("--jsonl", flags->rows,
                  "File of rows {id, messages, tools, kwargs, now}, one a line; \"-\": standard input")
      ->check(not_empty())
      ->type_name("FILE")
      ->required();
  app->add_option("--encoder", flags->format, "Chat format of models/chat: kimi_k3, kimi_k25, deepseek_v32 …")
      ->check(not_empty())
      ->type_name("NAME");
  app->add_flag("--segments", flags->segments,
                "Also print the pieces that are tokenised apart or as plain text");
  return {app, [flags, source] {
            if (source->count() == 0 && flags->format.empty()) {
              return usage_failure("render", Error{"SOURCE or --encoder is required"});
            }
            if (!flags->format.empty()) {
              if (const Status known = check_format(flags->format); !known) {
                return usage_failure("render", known.error());
              }
            }
            const Status status = run(*flags);
            return status.ok() ? kExitSuccess : input_failure(status.error());
          }};
}

}  // namespace firstlight
