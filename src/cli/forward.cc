// firstlight forward: runs prompts given as token ids and writes down values on the way.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/pending_file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "cli/commands.h"
#include "cli/loaded_model.h"
#include "cli/model_flags.h"
#include "cli/terminal.h"
#include "cli/validators.h"
#include "engine/forward.h"
#include "python/tracer.h"

namespace firstlight {
namespace {

struct Flags {
  ModelFlags model;
  std::string prompts;
  std::string out;
  std::int64_t chunk = 0;
  std::int64_t greedy = 0;
  bool together = false;
  bool unfused = false;
  std::vector<std::string> values;
  std::vector<std::string> force;
};

/// Rows of a step when no --chunk is given: a whole prompt, up to this.
constexpr std::int64_t kLargestStep = 2048;

bool contains(const std::vector<std::string>& list, const std::string& word) {
  return std::ranges::find(list, word) != list.end();
}

/// The kinds asked for. A list that names only kinds beyond the default ones adds to these.
std::vector<std::string> chosen_kinds(const std::vector<std::string>& values) {
  const std::vector<std::string>& usual = default_value_kinds();
  const bool exact = std::ranges::any_of(values, [&](const std::string& v) { return contains(usual, v); });
  std::vector<std::string> kinds = exact ? std::vector<std::string>{} : usual;
  kinds.insert(kinds.end(), values.begin(), values.end());
  return kinds;
}

std::vector<std::int32_t> ints_of(const TensorView& view) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(view.elements()));
  if (!out.empty()) std::memcpy(out.data(), view.data, out.size() * sizeof(std::int32_t));
  return out;
}

/// The forced choices of a prompt: NAME.<kind>.<layer> of IN for every such value of the graph. Position
/// lists may be narrower than the model's; they are padded.
Status read_forced(const SafetensorsContent& file, const Graph& graph, const std::vector<std::string>& kinds,
                   const std::string& path, ForwardPrompt& prompt) {
  std::map<ValueId, bool> given;
  std::string missing;
  for (const NamedValue& n : graph.names()) {
    if (!contains(kinds, n.name.substr(0, n.name.find('.')))) continue;
    const std::string name = prompt.name + "." + n.name;
    const auto tensor = std::ranges::find(file.tensors, name, &NamedTensor::name);
    if (tensor == file.tensors.end()) {
      given.emplace(n.value, false);
      continue;
    }
    given[n.value] = true;
    const std::int64_t width = graph.values()[static_cast<std::size_t>(n.value)].type.width();
    const TensorView& view = tensor->view;
    const bool positions = n.name.starts_with("topk.");
    const bool fits = view.dtype == DType::kI32 && view.shape.size() == 2 &&
                      (positions ? view.shape[1] <= width : view.shape[1] == width);
    if (!fits) {
      return Error{path + ": " + name + " must be I32 [tokens, " + (positions ? "up to " : "") +
                   std::to_string(width) + "]"};
    }
    const std::vector<std::int32_t> rows = ints_of(view);
    std::vector<std::int32_t> padded;
    for (std::int64_t r = 0; r < view.shape[0]; ++r) {
      const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(r * view.shape[1]);
      padded.insert(padded.end(), begin, begin + static_cast<std::ptrdiff_t>(view.shape[1]));
      padded.resize(static_cast<std::size_t>((r + 1) * width), -1);
    }
    prompt.forced[n.name] = std::move(padded);
  }
  // A shared choice may be given under any of its names.
  for (const NamedValue& n : graph.names()) {
    const auto it = given.find(n.value);
    if (it != given.end() && !it->second && graph.find(n.name) == n.value) {
      missing += (missing.empty() ? "" : ", ") + prompt.name + "." + n.name;
      given.erase(it);
    }
  }
  if (given.empty() && missing.empty()) return Error{"--force: this model makes no such choice"};
  if (!missing.empty()) return Error{path + ": --force needs " + missing};
  return {};
}

Result<std::vector<ForwardPrompt>> read_prompts(const SafetensorsFile& file, const Graph& graph,
                                                const Flags& flags) {
  std::vector<ForwardPrompt> prompts;
  for (const NamedTensor& tensor : file.content.tensors) {
    if (!tensor.name.ends_with(".ids")) continue;
    if (tensor.view.dtype != DType::kI32 || tensor.view.shape.size() != 1) {
      return Error{flags.prompts + ": " + tensor.name + " must be I32 [tokens]"};
    }
    ForwardPrompt prompt{
        .name = tensor.name.substr(0, tensor.name.size() - 4), .ids = ints_of(tensor.view), .forced = {}};
    if (!flags.force.empty()) FL_TRY(read_forced(file.content, graph, flags.force, flags.prompts, prompt));
    prompts.push_back(std::move(prompt));
  }
  if (prompts.empty()) return Error{flags.prompts + ": holds no tensor NAME.ids"};
  std::ranges::sort(prompts, {}, &ForwardPrompt::name);
  return prompts;
}

Status run(const Flags& flags) {
  std::error_code none;
  if (std::filesystem::equivalent(flags.prompts, flags.out, none)) {
    return Error{flags.out + ": is the file of the prompts, and is not replaced"};
  }
  FL_TRY(check_not_of_checkpoint(flags.out, flags.model.folder));
  FL_TRY(PendingFile::possible(flags.out));  // before all is computed, not after it
  auto opened = open_checkpoint(flags.model);
  FL_ASSIGN(TracedModel traced,
            trace_model(flags.model.folder, models_folder(), stored_bytes(flags.model, opened)));
  FL_ASSIGN(const Checkpoint checkpoint, std::move(opened));
  FL_ASSIGN(const SafetensorsFile file, open_safetensors(flags.prompts));
  FL_ASSIGN(const std::vector<ForwardPrompt> prompts, read_prompts(file, traced.graph, flags));

  ForwardOptions options{.kinds = chosen_kinds(flags.values),
                         .chunk = flags.chunk,
                         .greedy = flags.greedy,
                         .together = flags.together};
  std::int64_t longest = 0;
  std::int64_t rows = 0;
  for (const ForwardPrompt& p : prompts) {
    const auto length = static_cast<std::int64_t>(p.ids.size());
    longest = std::max(longest, length + flags.greedy);
    const std::int64_t piece = flags.chunk > 0 ? std::min(flags.chunk, length) : length;
    rows = flags.together ? rows + piece : std::max(rows, piece);
  }
  // Every sequence of a joint step brings a row at least.
  rows =
      std::max(std::min(rows, kLargestStep), flags.together ? static_cast<std::int64_t>(prompts.size()) : 1);
  for (const std::string& kind : flags.values) {
    const bool exists =
        kind == "logits" || std::ranges::any_of(traced.graph.names(), [&](const NamedValue& n) {
          return n.name == kind || n.name.starts_with(kind + ".");
        });
    if (!exists) say_warning("this model has no values of the kind `" + kind + "`");
  }
  LoadOptions load{
      .f32 = flags.model.f32,
      .threads = flags.model.threads,
      .context = flags.model.context > 0 ? flags.model.context : std::min(longest, traced.max_context),
      .max_context = traced.max_context,
      .step_tokens = rows,
      .sampled_rows = rows,
      .sequences = flags.together ? static_cast<std::int64_t>(prompts.size()) : 1,
      .fuse = !flags.unfused,
      .settings = flags.model.settings,
      .image_token_id = traced.image_token_id,
      .keep = kept_names(traced.graph, options.kinds),
      .progress = {}};
  ProgressLine progress("loading", ProgressLine::Unit::kBytes);
  load.progress = [&](std::int64_t done, std::int64_t total) { progress.update(done, total); };
  FL_ASSIGN(const std::unique_ptr<Model> model,
            load_model(flags.model, std::move(traced.graph), checkpoint, std::move(load)));
  progress.clear();
  for (const std::string& notice : model->notices()) say(notice);
  FL_ASSIGN(const std::vector<ForwardValue> values, run_forward(*model, prompts, options));
  std::vector<NamedTensor> tensors;
  for (const ForwardValue& v : values) {
    tensors.push_back({.name = v.name, .view = {.dtype = v.dtype, .shape = v.shape, .data = v.data.data()}});
  }
  if (is_terminal(stderr)) {
    say(dimmed(std::to_string(prompts.size()) + " prompts, " + std::to_string(tensors.size()) +
               " values to " + flags.out));
  }
  return write_safetensors(flags.out, tensors, {{"format", "firstlight forward"}});
}

}  // namespace

Command add_forward(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("forward", "Run prompts given as token ids and write values down");
  auto flags = std::make_shared<Flags>();
  add_model_flags(*app, flags->model);
  app->add_option("--prompts", flags->prompts,
                  "Safetensors file with NAME.ids (I32 [tokens]) for each prompt")
      ->required()
      ->check(not_empty());
  app->add_option("--out", flags->out, "Safetensors file to write")->required()->check(not_empty());
  app->add_option("--chunk", flags->chunk,
                  "Tokens of a prompt a step (default: the whole prompt, up to 2048)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  app->add_option("--greedy", flags->greedy, "Continue each prompt with N greedy tokens: NAME.greedy")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  app->add_flag("--together", flags->together, "All prompts in the same steps (default: one after another)");
  app->add_flag("--no-fuse", flags->unfused, "Run the graph as traced, without fusions (changes no bit)");
  std::vector<std::string> kinds = default_value_kinds();
  kinds.insert(kinds.end(), request_value_kinds().begin(), request_value_kinds().end());
  const auto add_list = [&](const char* name, std::vector<std::string>& list, std::vector<std::string> words,
                            const char* help) {
    app->add_option_function<std::string>(
           name, [&list](const std::string& text) { list = list_entries(text); }, help)
        ->check(list_of(one_of(std::move(words))))
        ->type_name("KIND,…");
  };
  add_list("--values", flags->values, std::move(kinds),
           "Values to write, by kind: hidden, final, logits, experts, topk (the default ones), state, conv, "
           "mixed_attn, mixed_mlp. A list without a default kind adds to the default ones");
  add_list(
      "--force", flags->force, {"experts", "topk"},
      "Take these choices from the prompts' file (NAME.experts.N, NAME.topk.N) instead of computing them");
  return {app, [flags] {
            if (const Status status = check_model_flags(flags->model); !status) {
              return usage_failure("forward", status.error());
            }
            const Status status = run(*flags);
            return status.ok() ? kExitSuccess : input_failure(status.error());
          }};
}

}  // namespace firstlight
