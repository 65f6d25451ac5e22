// firstlight generate: one prompt, one answer, streamed.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/loaded_model.h"
#include "cli/model_flags.h"
#include "cli/sampling_flags.h"
#include "cli/terminal.h"
#include "cli/validators.h"
#include "engine/generation.h"
#include "python/chat_format.h"
#include "text/prompt.h"
#include "text/utf8.h"

namespace firstlight {
namespace {

using Json = nlohmann::ordered_json;

/// A million tokens of English have about 5 MB; more than this is not a prompt but the wrong file.
constexpr std::size_t kMaxPromptBytes = std::size_t{64} << 20;

struct Flags {
  ModelFlags model;
  SamplingFlags sampling;
  std::string prompt;  // "-": standard input
  std::string file;
  std::string system;
  bool raw = false;
  bool json = false;
};

Result<std::string> read_standard_input() {
  if (is_terminal(stdin))
    say(dimmed("reading the prompt from the terminal: end it with Ctrl-D on a line of its own"));
  std::string text;
  char buffer[1 << 16];
  // At the end of what is typed, a further read would wait for a second Ctrl-D.
  while (std::feof(stdin) == 0 && std::ferror(stdin) == 0) {
    text.append(buffer, std::fread(buffer, 1, sizeof buffer, stdin));
    if (text.size() > kMaxPromptBytes) {
      return Error{"standard input: the prompt has more than " + std::to_string(kMaxPromptBytes) + " bytes"};
    }
  }
  if (std::ferror(stdin) != 0) return Error{"standard input: cannot be read"};
  return text;
}

/// The prompt from where the flags say. As one message of a conversation it loses the newline at its end,
/// which is the file's and not the author's.
Result<std::string> read_prompt(const Flags& flags, bool from_argument) {
  std::string text;
  if (from_argument && flags.prompt != "-") return flags.prompt;
  if (!flags.file.empty()) {
    FL_ASSIGN(text, read_file(flags.file, kMaxPromptBytes));
  } else {
    FL_ASSIGN(text, read_standard_input());
  }
  if (!flags.raw && text.ends_with('\n')) text.pop_back();
  return text;
}

/// What the model reads.
Result<std::vector<std::int32_t>> prompt_ids(const Flags& flags, const Tokenizer& tokenizer,
                                             const std::string& prompt) {
  std::vector<std::int32_t> ids;
  if (prompt.empty()) return Error{"the prompt is empty"};
  if (flags.raw) {
    FL_TRY(tokenizer.encode(prompt, /*parse_special=*/true, ids));
    const std::vector<std::int32_t> prefix = tokenizer.prefix();  // unless the text has it already
    if (!std::equal(prefix.begin(), prefix.end(), ids.begin(),
                    ids.begin() + static_cast<std::ptrdiff_t>(std::min(prefix.size(), ids.size())))) {
      ids.insert(ids.begin(), prefix.begin(), prefix.end());
    }
    return ids;
  }
  if (!is_valid_utf8(prompt)) return Error{"the prompt is not valid UTF-8 (only --raw takes any bytes)"};
  FL_ASSIGN(const ChatFormat format, ChatFormat::load(flags.model.folder));
  Json messages = Json::array();
  if (!flags.system.empty()) messages.push_back({{"role", "system"}, {"content", flags.system}});
  messages.push_back({{"role", "user"}, {"content", prompt}});
  const PromptEncoder encoder(tokenizer);
  FL_ASSIGN(const Prompt rendered, format.render_messages(messages, /*add_generation_prompt=*/true,
                                                          encoder.control_texts(format.template_texts())));
  FL_TRY(encoder.encode(rendered, ids));
  return ids;
}

double per_second(std::int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

std::string report(const Generation& g, const GenerationOptions& options) {
  const GenerationStats& s = g.stats;
  char line[256];
  std::snprintf(line, sizeof line,
                "prompt: %lld tokens, %.1f tokens/s; answer: %lld tokens, %.1f tokens/s; end: %s",
                static_cast<long long>(s.prompt_tokens), per_second(s.prompt_tokens, s.prefill_seconds),
                static_cast<long long>(s.generated_tokens), per_second(s.generated_tokens, s.decode_seconds),
                std::string(finish_reason_name(g.finish)).c_str());
  return options.sampling.temperature > 0 ? line + ("; seed: " + std::to_string(options.sampling.seed))
                                          : line;
}

std::string json_text(const Generation& g, const GenerationOptions& options, double load_seconds) {
  const GenerationStats& s = g.stats;
  Json object = {
      {"text", g.text},
      {"finish_reason", finish_reason_name(g.finish)},
      {"tokens", g.tokens},
      {"prompt_tokens", s.prompt_tokens},
      {"cached_tokens", s.cached_tokens},
      {"generated_tokens", s.generated_tokens},
      {"load_seconds", load_seconds},
      {"prefill_seconds", s.prefill_seconds},
      {"decode_seconds", s.decode_seconds},
      {"prefill_tokens_per_second", per_second(s.prompt_tokens, s.prefill_seconds)},
      {"decode_tokens_per_second", per_second(s.generated_tokens, s.decode_seconds)},
  };
  if (options.sampling.temperature > 0) object["seed"] = options.sampling.seed;
  return object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

int run(const Flags& flags, bool prompt_given) {
  for (const Status& status : {check_model_flags(flags.model), check_sampling_flags(flags.sampling)}) {
    if (!status) return usage_failure("generate", status.error());
  }
  const auto prompt = read_prompt(flags, prompt_given);
  if (!prompt) return input_failure(prompt.error());
  const auto loaded = open_model(flags.model);
  if (!loaded) return input_failure(loaded.error());
  LoadedModel& model = **loaded;
  auto options = generation_options(flags.sampling, model.defaults);
  if (!options) return input_failure(options.error());
  options->end_tokens = model.end_tokens;

  const auto ids = prompt_ids(flags, *model.tokenizer, *prompt);
  if (!ids) return input_failure(ids.error());
  if (const Status status = load_weights(model); !status) return input_failure(status.error());

  const InterruptScope interrupt;
  bool output_failed = false;
  GenerationCallbacks callbacks;
  ProgressLine reading("reading the prompt", ProgressLine::Unit::kTokens);
  callbacks.prefill = [&](std::int64_t done, std::int64_t total) {
    done < total ? reading.update(done, total) : reading.clear();
  };
  callbacks.cancelled = [&] { return InterruptScope::requested() || output_failed; };
  if (!flags.json) callbacks.text = [&](std::string_view part) { output_failed |= !write_output(part); };

  SessionSequence sequence(*model.session);
  const auto result = generate(sequence, *model.tokenizer, *ids, *options, callbacks);
  reading.clear();
  if (!result) return input_failure(result.error());
  if (flags.json) {
    output_failed |= !write_output(json_text(*result, *options, model.load_seconds));
  } else if (is_terminal(stdout) && !result->text.ends_with('\n')) {
    output_failed |= !write_output("\n");
  }
  if (output_failed) return input_failure(Error{"standard output: cannot be written"});
  if (result->finish == FinishReason::kContextFull) {
    say_warning("the context of " + std::to_string(sequence.capacity()) +
                " tokens is full: the answer stops here (--ctx sets its size)");
  }
  if (!flags.json) say(dimmed(report(*result, *options)));
  return result->finish == FinishReason::kCancelled ? kExitInterrupted : kExitSuccess;
}

}  // namespace

Command add_generate(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("generate", "Answer one prompt and exit");
  auto flags = std::make_shared<Flags>();
  add_model_flags(*app, flags->model);
  CLI::Option* prompt =
      app->add_option("PROMPT", flags->prompt, "The prompt; \"-\" or none: from standard input");
  CLI::Option* file = app->add_option("--file", flags->file, "Read the prompt from a file")
                          ->check(not_empty())
                          ->type_name("F");
  file->excludes(prompt);
  CLI::Option* system =
      app->add_option("--system", flags->system, "System message before the prompt")->type_name("S");
  app->add_flag("--raw", flags->raw, "Feed the text as it is, without the chat template")->excludes(system);
  app->add_flag("--json", flags->json, "Print one JSON object at the end: text, tokens, timings");
  add_sampling_flags(*app, flags->sampling);
  return {app, [flags, prompt] { return run(*flags, prompt->count() > 0); }};
}

}  // namespace firstlight
