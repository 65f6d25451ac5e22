#include "cli/sampling_flags.h"

#include <CLI/CLI.hpp>
#include <limits>
#include <random>

#include "cli/validators.h"
#include "text/stop_strings.h"

namespace firstlight {
namespace {

/// The first of flag and file that is there, otherwise `neutral`.
template <class T, class File>
T first_of(const std::optional<T>& flag, const std::optional<File>& file, T neutral) {
  if (flag) return *flag;
  return file ? static_cast<T>(*file) : neutral;
}

SamplingOptions merged(const SamplingFlags& flags, const GenerationDefaults& file) {
  const SamplingOptions neutral;
  SamplingOptions options;
  // "do_sample": false recommends greedy search whatever temperature stands beside it.
  const bool greedy = file.do_sample == false && !flags.temperature;
  options.temperature = greedy ? 0 : first_of(flags.temperature, file.temperature, neutral.temperature);
  std::optional<int> file_top_k;
  if (file.top_k) {  // more than the largest vocabulary is no limit
    file_top_k = *file.top_k > std::numeric_limits<int>::max() ? 0 : static_cast<int>(*file.top_k);
  }
  options.top_k = first_of(flags.top_k, file_top_k, neutral.top_k);
  options.top_p = first_of(flags.top_p, file.top_p, neutral.top_p);
  options.min_p = first_of(flags.min_p, file.min_p, neutral.min_p);
  options.repetition_penalty =
      first_of(flags.repetition_penalty, file.repetition_penalty, neutral.repetition_penalty);
  options.presence_penalty =
      first_of(flags.presence_penalty, file.presence_penalty, neutral.presence_penalty);
  options.frequency_penalty =
      first_of(flags.frequency_penalty, file.frequency_penalty, neutral.frequency_penalty);
  if (flags.seed) {
    options.seed = *flags.seed;
  } else {
    std::random_device entropy;
    options.seed = entropy();  // 32 bits: short enough to be typed again
  }
  return options;
}

/// A flag that only draws at random give a meaning to, at temperature 0 from `where`.
Status check_greedy(const SamplingFlags& flags, const std::string& where) {
  const char* const inert = flags.top_k   ? "--top-k"
                            : flags.top_p ? "--top-p"
                            : flags.min_p ? "--min-p"
                            : flags.seed  ? "--seed"
                                          : nullptr;
  if (inert == nullptr) return {};
  return Error{inert + (" has no effect: at temperature 0" + where) + " the most likely token is taken"};
}

}  // namespace

void add_sampling_flags(CLI::App& app, SamplingFlags& flags) {
  const auto add = [&](const char* name, auto& value, const char* type, const char* help) {
    return app.add_option(name, value, help)
        ->check(not_empty())
        ->type_name(type)
        ->group("Sampling (defaults: generation_config.json)");
  };
  add("--temperature", flags.temperature, "T",
      "0 always takes the most likely token; 1 is the model's distribution");
  add("--top-k", flags.top_k, "K", "Only the K most likely tokens; 0: all");
  add("--top-p", flags.top_p, "P",
      "Only the most likely tokens that hold the probability P together; 1: all");
  add("--min-p", flags.min_p, "P", "Only tokens at least P times as likely as the best; 0: all");
  add("--repetition-penalty", flags.repetition_penalty, "X",
      "Makes tokens of prompt and answer less likely; 1: off");
  add("--presence-penalty", flags.presence_penalty, "X", "Subtracted from the logits of the answer's tokens");
  add("--frequency-penalty", flags.frequency_penalty, "X", "The same for each time the token has appeared");
  add("--seed", flags.seed, "N", "Makes the answer repeatable")->check(whole_number());

  const char* const ends = "End of an answer";
  app.add_option("--max-tokens", flags.max_tokens,
                 "At most N tokens (default: max_new_tokens of generation_config.json, else until the "
                 "context is full)")
      ->type_name("N")
      ->check(count())
      ->group(ends);
  app.add_option("--stop", flags.stop, "Ends the answer before this text; may be repeated")
      ->type_name("S")
      ->take_all()
      ->allow_extra_args(false)
      ->group(ends);
  app.add_flag("--ignore-eos", flags.ignore_end_tokens, "The model's end tokens do not end the answer")
      ->group(ends);
}

Status check_sampling_flags(const SamplingFlags& flags) {
  FL_TRY(validate(merged(flags, {})));
  if (flags.temperature && *flags.temperature == 0) FL_TRY(check_greedy(flags, ""));
  if (const auto stops = StopStrings::create(flags.stop); !stops) return stops.error();
  return {};
}

Result<GenerationOptions> generation_options(const SamplingFlags& flags, const GenerationDefaults& defaults) {
  GenerationOptions options;
  options.sampling = merged(flags, defaults);
  if (const Status status = validate(options.sampling); !status) {
    return Error{"generation_config.json: " + status.error().message};
  }
  if (options.sampling.temperature == 0) FL_TRY(check_greedy(flags, " (generation_config.json)"));
  options.max_tokens = flags.max_tokens ? *flags.max_tokens : defaults.max_new_tokens.value_or(0);
  options.stop = flags.stop;
  options.ignore_end_tokens = flags.ignore_end_tokens;
  return options;
}

}  // namespace firstlight
