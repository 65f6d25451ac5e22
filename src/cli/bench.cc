// firstlight bench: how fast a model reads prompts and generates, against what the machine can do.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/pending_file.h"
#include "cli/bench_report.h"
#include "cli/commands.h"
#include "cli/loaded_model.h"
#include "cli/model_flags.h"
#include "cli/terminal.h"
#include "cli/validators.h"
#include "engine/meter.h"
#include "python/tracer.h"

namespace firstlight {
namespace {

struct Flags {
  ModelFlags model;
  std::vector<std::int64_t> prompts = {512};
  std::vector<std::int64_t> depths = {0};
  std::vector<std::int64_t> streams = {1};
  std::int64_t decode = 64;
  std::int64_t repeat = 3;
  std::int64_t chunk = 512;
  std::int64_t fast_fill = 0;  // tokens of a context that are computed; 0: all
  std::string only;            // "prefill" or "decode"; empty: both
  std::string json;
  bool operators = false;
};

/// Ascending, each once.
std::vector<std::int64_t> sorted(std::vector<std::int64_t> list) {
  std::ranges::sort(list);
  list.erase(std::unique(list.begin(), list.end()), list.end());
  return list;
}

/// Tokens that the longest measurement puts into a sequence.
std::int64_t needed_context(const Flags& flags) {
  std::int64_t after = flags.only == "prefill" ? 0 : flags.decode;
  if (flags.only != "decode") after = std::max(after, std::ranges::max(flags.prompts));
  return std::ranges::max(flags.depths) + after;
}

/// Tokens that are computed as a prompt at most, those of contexts included; at least one.
std::int64_t longest_prompt(const Flags& flags) {
  const std::int64_t deepest = std::ranges::max(flags.depths);
  const std::int64_t context = flags.fast_fill > 0 ? std::min(flags.fast_fill, deepest) : deepest;
  const std::int64_t prompt = flags.only == "decode" ? 1 : std::ranges::max(flags.prompts);
  return std::max(context, prompt);
}

/// Tokens of a prompt that a step takes at most: no step needs room for more than there are.
std::int64_t largest_step(const Flags& flags) { return std::min(flags.chunk, longest_prompt(flags)); }

LoadOptions load_options(const Flags& flags, const TracedModel& traced) {
  const std::int64_t streams = std::ranges::max(flags.streams);
  LoadOptions load;
  load.f32 = flags.model.f32;
  load.threads = flags.model.threads;
  load.context = flags.model.context > 0 ? flags.model.context : needed_context(flags);
  load.max_context = traced.max_context;
  load.step_tokens = std::max(largest_step(flags), streams);
  load.sequences = streams;
  load.settings = flags.model.settings;
  load.image_token_id = traced.image_token_id;
  for (const NamedValue& n : traced.graph.names()) {
    if (n.name.starts_with("experts.")) load.keep.push_back(n.name);
  }
  return load;
}

Status measure_all(const Flags& flags, Model& model, MachineMeter& machine, BenchReport& report) {
  FL_ASSIGN(const std::unique_ptr<Meter> meter,
            Meter::create(model, [&machine] { return machine.read_speed(); }));
  for (const std::int64_t depth : sorted(flags.depths)) {
    ProgressLine filling("filling the context", ProgressLine::Unit::kTokens);
    FL_TRY(meter->deepen(depth, flags.fast_fill > 0 ? flags.fast_fill : depth,
                         [&](std::int64_t done, std::int64_t total) { filling.update(done, total); }));
    filling.clear();
    for (const std::int64_t tokens : sorted(flags.prompts)) {
      if (flags.only == "decode") break;
      const std::int64_t chunk = largest_step(flags);
      FL_ASSIGN(MeterTimes times, meter->prefill(tokens, chunk, flags.repeat, flags.operators));
      report.add_prefill(tokens, depth, chunk, std::move(times));
    }
    for (const std::int64_t streams : sorted(flags.streams)) {
      if (flags.only == "prefill") break;
      FL_ASSIGN(MeterTimes times, meter->decode(flags.decode, streams, flags.repeat, flags.operators));
      report.add_decode(flags.decode, depth, streams, std::move(times));
    }
  }
  return {};
}

/// What is wrong with the flags by themselves, whatever the checkpoint is.
Status check_flags(const Flags& flags) {
  FL_TRY(check_model_flags(flags.model));
  if (flags.model.context > 0 && flags.model.context < needed_context(flags)) {
    return Error{"--ctx " + std::to_string(flags.model.context) + " is less than the " +
                 std::to_string(needed_context(flags)) + " tokens that the longest measurement takes"};
  }
  return {};
}

/// Devices and pipes take what is written to them; a file is replaced by a whole one, or stays.
bool is_stream(const std::string& path) {
  std::error_code ignored;
  const std::filesystem::file_status found = std::filesystem::status(path, ignored);
  return std::filesystem::exists(found) && !std::filesystem::is_regular_file(found) &&
         !std::filesystem::is_directory(found);
}
Status write_file(const std::string& path, const std::string& text) {
  if (is_stream(path)) {
    std::ofstream stream(path, std::ios::binary);
    stream << text;
    stream.close();
    return stream ? Status() : Error{path + ": cannot be written"};
  }
  PendingFile file(path);
  FL_TRY(file.create(static_cast<std::int64_t>(text.size())));
  FL_TRY(file.write(0, text.data(), text.size()));
  return file.commit();
}

Status run(const Flags& flags) {
  const bool to_file = !flags.json.empty() && flags.json != "-";
  if (to_file && !is_stream(flags.json)) {
    FL_TRY(check_not_of_checkpoint(flags.json, flags.model.folder));
    FL_TRY(PendingFile::possible(flags.json));  // before an hour of measuring, not after it
  }
  auto opened = open_checkpoint(flags.model);
  FL_ASSIGN(TracedModel traced,
            trace_model(flags.model.folder, models_folder(), stored_bytes(flags.model, opened)));
  FL_ASSIGN(const Checkpoint checkpoint, std::move(opened));
  LoadOptions load = load_options(flags, traced);
  ProgressLine progress("loading", ProgressLine::Unit::kBytes);
  load.progress = [&](std::int64_t done, std::int64_t total) { progress.update(done, total); };
  FL_ASSIGN(const std::unique_ptr<Model> model,
            load_model(flags.model, std::move(traced.graph), checkpoint, std::move(load)));
  progress.clear();
  for (const std::string& notice : model->notices()) say_warning(notice);

  FL_ASSIGN(const std::unique_ptr<MachineMeter> machine, MachineMeter::create(*model));
  BenchReport report(*model, flags.model, flags.fast_fill, *machine);
  FL_TRY(measure_all(flags, *model, *machine, report));
  const std::string json =
      report.json().dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  if (!write_output(flags.json == "-" ? json : report.table())) {
    return Error{"standard output: cannot be written"};
  }
  return to_file ? write_file(flags.json, json) : Status();
}

}  // namespace

Command add_bench(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand(
      "bench", "Measure prompts and generation on random tokens, beside what the machine can do");
  auto flags = std::make_shared<Flags>();
  add_model_flags(*app, flags->model);
  const auto add_list = [&](const char* name, std::vector<std::int64_t>& list, const CLI::Validator& entry,
                            const char* help) {
    const auto take = [&list](const std::string& text) {
      list.clear();
      for (const std::string& one : list_entries(text)) list.push_back(std::stoll(one));
    };
    return app->add_option_function<std::string>(name, take, help)->check(list_of(entry))->type_name("N,…");
  };
  const CLI::Option* const prompt =
      add_list("--prompt", flags->prompts, count(1 << 24), "Lengths of prompts (default: 512)");
  const CLI::Option* const decode =
      app->add_option("--decode", flags->decode, "Tokens to generate (default: 64)")
          ->check(count(1 << 24))
          ->type_name("N");
  add_list("--depth", flags->depths, count(std::int64_t{1} << 32, 0),
           "Tokens in the context before either (default: 0)");
  const CLI::Option* const streams =
      add_list("--streams", flags->streams, count(1024), "Sequences that generate together (default: 1)");
  app->add_option("--only", flags->only, "Measure one of the two: prefill or decode")
      ->check(one_of({"prefill", "decode"}))
      ->type_name("prefill|decode");
  app->add_option("--repeat", flags->repeat, "Runs of each measurement (default: 3)")
      ->check(count(1000))
      ->type_name("N");
  const CLI::Option* const chunk =
      app->add_option("--chunk", flags->chunk, "Most tokens of a prompt in a step (default: 512)")
          ->check(count(1 << 20))
          ->type_name("N");
  const CLI::Option* const fast_fill =
      app->add_option("--fast-fill", flags->fast_fill,
                      "Compute only the first N tokens of a context, whole pages of 64, and repeat their "
                      "cache behind them: to look at deep contexts quickly, not for figures to compare")
          ->check(count(1 << 24, kPageTokens))
          ->type_name("N");
  app->add_flag("--operators", flags->operators, "Show where the time of each measurement goes");
  app->add_option("--json", flags->json,
                  "Write all figures to this file (-: standard output, without the table)")
      ->check(not_empty())
      ->type_name("FILE");
  return {
      app, [flags, prompt, decode, streams, chunk, fast_fill] {
        const auto inert = [&](const CLI::Option* option, const std::string& why) {
          return usage_failure("bench", Error{option->get_name() + " has no effect with " + why});
        };
        if (flags->only == "decode" && prompt->count() > 0) return inert(prompt, "--only decode");
        for (const CLI::Option* option : {decode, streams}) {
          if (flags->only == "prefill" && option->count() > 0) return inert(option, "--only prefill");
        }
        const std::int64_t deepest = std::ranges::max(flags->depths);
        if (fast_fill->count() > 0 && deepest - flags->fast_fill / kPageTokens * kPageTokens < kPageTokens) {
          return inert(fast_fill, "contexts that are not a page of 64 tokens longer");
        }
        if (flags->only == "decode" && deepest == 0) {
          if (chunk->count() > 0) return inert(chunk, "--only decode and no context");
          if (flags->model.settings.expanded_prefill) {
            return usage_failure("bench", Error{"--mla-prefill expanded has no effect with --only decode "
                                                "and no context"});
          }
        }
        if (const Status status = check_flags(*flags); !status) {
          return usage_failure("bench", status.error());
        }
        const Status status = run(*flags);
        return status.ok() ? kExitSuccess : input_failure(status.error());
      }};
}

}  // namespace firstlight
