// firstlight chat: a conversation at the terminal. The cache is kept from turn to turn.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "cli/commands.h"
#include "cli/conversation.h"
#include "cli/interrupt.h"
#include "cli/line_reader.h"
#include "cli/loaded_model.h"
#include "cli/model_flags.h"
#include "cli/sampling_flags.h"
#include "cli/terminal.h"
#include "engine/generation.h"
#include "python/chat_format.h"
#include "text/prompt.h"
#include "text/utf8.h"

namespace firstlight {
namespace {

constexpr const char* kHelp =
    "/help           this list\n"
    "/system TEXT    sets the system message; without TEXT, removes it\n"
    "/reset          forgets the conversation, keeps the system message\n"
    "/save FILE      writes the conversation as JSON\n"
    "/load FILE      goes on with a conversation from a file\n"
    "/stats          tokens and speed of the last answer, and how full the context is\n"
    "/exit           leaves, as Ctrl-D does\n"
    "//TEXT          sends \"/TEXT\" as a message\n"
    "Ctrl-C          stops the answer; at an empty prompt, twice leaves";

struct Flags {
  ModelFlags model;
  SamplingFlags sampling;
  std::string system;
};

class Chat {
 public:
  Chat(LoadedModel& model, ChatFormat format, GenerationOptions options, const std::string& system)
      : model_(&model),
        sequence_(*model.session),
        format_(std::move(format)),
        encoder_(*model.tokenizer),
        controls_(encoder_.control_texts(format_.template_texts())),
        options_(std::move(options)) {
    conversation_.set_system(system);
  }

  int run() {
    const InterruptScope interrupt;  // all the time: a Ctrl-C that comes a moment late must not end the chat
    const auto reader = LineReader::open("> ");
    bool leaving = false;  // Ctrl-C was pressed at the prompt just now
    for (std::string line; !finished_;) {
      switch (reader->read(line)) {
        case LineReader::Outcome::kEnd:
          return exit_code_;
        case LineReader::Outcome::kInterrupted:
          if (leaving) return kExitInterrupted;
          leaving = true;
          say(dimmed("Ctrl-C once more, or Ctrl-D, leaves"));
          break;
        case LineReader::Outcome::kLine:
          leaving = false;
          handle(line);
          break;
      }
    }
    return exit_code_;
  }

 private:
  void handle(const std::string& line) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) return;
    if (line.starts_with("//")) {
      answer(line.substr(1));
    } else if (line.starts_with('/')) {
      const std::size_t space = std::min(line.find(' '), line.size());
      const std::size_t begin = std::min(line.find_first_not_of(' ', space), line.size());
      const std::string argument = line.substr(begin, line.find_last_not_of(" \r") + 1 - begin);
      command(line.substr(0, space), argument);
    } else {
      answer(line);
    }
  }

  void command(const std::string& name, const std::string& argument) {
    const bool takes_argument = name == "/system" || name == "/save" || name == "/load";
    if (!takes_argument && !argument.empty()) return say_error(name + " takes nothing after it");
    if ((name == "/save" || name == "/load") && argument.empty())
      return say_error(name + " needs a file name");
    if (name == "/help") {
      say(kHelp);
    } else if (name == "/system") {
      if (!is_valid_utf8(argument)) return say_error("the system message is not valid UTF-8");
      conversation_.set_system(argument);
      say(dimmed(argument.empty() ? "no system message from now on" : "system message set"));
    } else if (name == "/reset") {
      conversation_.reset();
      say(dimmed("conversation forgotten"));
    } else if (name == "/save") {
      if (const Status status = conversation_.save(argument); !status)
        return say_error(status.error().message);
      say(dimmed(std::to_string(conversation_.size()) + " messages written to " + argument));
    } else if (name == "/load") {
      auto loaded = Conversation::load(argument);
      if (!loaded) return say_error(loaded.error().message);
      conversation_ = std::move(*loaded);
      say(dimmed(std::to_string(conversation_.size()) + " messages read from " + argument));
    } else if (name == "/stats") {
      say(stats_text());
    } else if (name == "/exit") {
      finished_ = true;
    } else {
      say_error("there is no command " + name +
                "; /help lists them, and //TEXT sends \"/TEXT\" as a message");
    }
  }

  Result<std::vector<std::int32_t>> prompt_ids(bool with_generation_prompt) const {
    FL_ASSIGN(const Prompt prompt,
              format_.render_messages(conversation_.messages(), with_generation_prompt, controls_));
    std::vector<std::int32_t> ids;
    FL_TRY(encoder_.encode(prompt, ids));
    return ids;
  }

  void answer(const std::string& message) {
    InterruptScope::reset();
    if (!is_valid_utf8(message)) return say_error("the message is not valid UTF-8");
    conversation_.add("user", message);
    const auto result = generate_answer();
    if (!result) {
      conversation_.drop_last();
      say_error(result.error().message);
      exit_code_ = kExitInput;
      return;
    }
    conversation_.add("assistant", result->text);
    stats_ = result->stats;
    if (!write_output("\n")) {
      say_error("standard output: cannot be written");
      exit_code_ = kExitInput;
      finished_ = true;
    }
    if (result->finish == FinishReason::kContextFull) {
      say_warning("the context of " + std::to_string(sequence_.capacity()) +
                  " tokens is full: the answer stops here. /reset starts over; --ctx sets the size");
    } else if (result->finish == FinishReason::kLength) {
      say_warning("the answer stops here, after " + std::to_string(options_.max_tokens) +
                  " tokens (--max-tokens, or max_new_tokens in generation_config.json)");
    } else if (result->finish == FinishReason::kCancelled) {
      say(dimmed("stopped"));
    }
  }

  /// To the conversation that ends with the user's message.
  Result<Generation> generate_answer() {
    FL_ASSIGN(const std::vector<std::int32_t> prompt, prompt_ids(true));
    if (static_cast<std::int64_t>(prompt.size()) >= sequence_.capacity()) {
      return Error{"the conversation has " + std::to_string(prompt.size()) +
                   " tokens with this message, which the " + "context of " +
                   std::to_string(sequence_.capacity()) +
                   " cannot hold and answer: /reset starts over; --ctx sets the size"};
    }
    // All but the opening of the answer stands in the next turn's prompt too, whatever becomes of the answer.
    GenerationOptions options = options_;
    options.sampling.seed =
        random_bits(options_.sampling.seed, conversation_.size());  // each turn its own stream
    if (const auto stable = prompt_ids(false)) {
      const auto end = std::mismatch(prompt.begin(), prompt.end(), stable->begin(), stable->end()).first;
      options.stable_tokens = end - prompt.begin();
    }

    ProgressLine reading("reading", ProgressLine::Unit::kTokens);
    GenerationCallbacks callbacks;
    callbacks.prefill = [&](std::int64_t done, std::int64_t total) {
      done < total ? reading.update(done, total) : reading.clear();
    };
    bool output_failed = false;
    callbacks.text = [&](std::string_view text) { output_failed |= !write_output(text); };
    callbacks.cancelled = [&] { return InterruptScope::requested() || output_failed; };
    return generate(sequence_, *model_->tokenizer, prompt, options, callbacks);
  }

  [[nodiscard]] std::string stats_text() const {
    char text[400];
    std::snprintf(
        text, sizeof text,
        "last prompt: %lld tokens, %lld of them from the cache, the others read in %.2f s\n"
        "last answer: %lld tokens in %.2f s, %.1f tokens/s\n"
        "context: %lld of %lld tokens",
        static_cast<long long>(stats_.prompt_tokens), static_cast<long long>(stats_.cached_tokens),
        stats_.prefill_seconds, static_cast<long long>(stats_.generated_tokens), stats_.decode_seconds,
        stats_.decode_seconds > 0 ? static_cast<double>(stats_.generated_tokens) / stats_.decode_seconds : 0,
        static_cast<long long>(sequence_.tokens().size()), static_cast<long long>(sequence_.capacity()));
    return text;
  }

  LoadedModel* model_;
  SessionSequence sequence_;
  ChatFormat format_;
  PromptEncoder encoder_;
  std::vector<std::string> controls_;  // what no message may forge
  GenerationOptions options_;
  Conversation conversation_;
  GenerationStats stats_;
  bool finished_ = false;
  int exit_code_ = kExitSuccess;  // of a script: a message that was refused is a failure
};

int run(const Flags& flags) {
  for (const Status& status : {check_model_flags(flags.model), check_sampling_flags(flags.sampling)}) {
    if (!status) return usage_failure("chat", status.error());
  }
  const auto loaded = open_model(flags.model);
  if (!loaded) return input_failure(loaded.error());
  LoadedModel& model = **loaded;
  auto options = generation_options(flags.sampling, model.defaults);
  if (!options) return input_failure(options.error());
  options->end_tokens = model.end_tokens;
  auto format = ChatFormat::load(flags.model.folder);
  if (!format) return input_failure(format.error());
  if (const Status status = load_weights(model); !status) return input_failure(status.error());

  if (is_terminal(stdin)) {
    say(dimmed(model.model->graph().family() + ", context of " + std::to_string(model.session->capacity()) +
               " tokens; /help lists the commands"));
  }
  return Chat(model, std::move(*format), std::move(*options), flags.system).run();
}

}  // namespace

Command add_chat(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("chat", "Talk with a model at the terminal");
  auto flags = std::make_shared<Flags>();
  add_model_flags(*app, flags->model);
  app->add_option("--system", flags->system, "System message")->type_name("S");
  add_sampling_flags(*app, flags->sampling);
  return {app, [flags] { return run(*flags); }};
}

}  // namespace firstlight
