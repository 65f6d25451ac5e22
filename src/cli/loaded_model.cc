#include "cli/loaded_model.h"

#include <chrono>
#include <filesystem>
#include <utility>

#include "cli/terminal.h"
#include "engine/generation.h"

namespace firstlight {

Result<std::unique_ptr<LoadedModel>> open_model(const ModelFlags& flags) {
  const std::filesystem::path folder = flags.folder;
  auto loaded = std::make_unique<LoadedModel>();
  loaded->flags = flags;
  // Looked at first, reported last: a fault of config.json explains more than one of the tensors.
  auto checkpoint = open_checkpoint(flags);
  FL_ASSIGN(loaded->traced, trace_model(folder, models_folder(), stored_bytes(flags, checkpoint)));
  FL_ASSIGN(loaded->tokenizer, load_tokenizer(folder, loaded->traced.vocab_size));
  FL_ASSIGN(loaded->defaults, read_generation_config(folder / "generation_config.json"));
  std::string unknown;
  for (const std::string& key : loaded->defaults.unknown_keys) unknown += (unknown.empty() ? "" : ", ") + key;
  if (!unknown.empty()) say_warning("generation_config.json: not used: " + unknown);
  loaded->end_tokens = end_token_ids(loaded->traced.eos_token_ids, loaded->defaults, *loaded->tokenizer);
  FL_ASSIGN(loaded->checkpoint, std::move(checkpoint));
  return loaded;
}

Result<Checkpoint> open_checkpoint(const ModelFlags& flags) {
  if (flags.dummy) return Checkpoint();
  return Checkpoint::open(flags.folder);
}

std::optional<std::int64_t> stored_bytes(const ModelFlags& flags, const Result<Checkpoint>& checkpoint) {
  if (flags.dummy) return std::nullopt;
  return checkpoint.ok() ? checkpoint->total_bytes() : 0;
}

Result<std::unique_ptr<Model>> load_model(const ModelFlags& flags, Graph graph, const Checkpoint& checkpoint,
                                          LoadOptions options) {
  if (flags.dummy) return Model::load_dummy(std::move(graph), std::move(options));
  std::error_code failure;
  if (flags.keep_packed.when == KeepPacked::When::kAlways &&
      !std::filesystem::is_directory(flags.keep_packed.folder, failure)) {
    return Error{"--packed-cache: must be auto, off or a folder that exists, not " +
                 flags.keep_packed.folder};
  }
  std::optional<ProgressLine> writing;  // its clock starts when the weights are there
  options.keep_packed = flags.keep_packed;
  options.write_progress = [&](std::int64_t done, std::int64_t total) {
    if (!writing) writing.emplace("writing packed weights", ProgressLine::Unit::kBytes);
    writing->update(done, total);
  };
  return Model::load(std::move(graph), checkpoint, std::move(options));
}

Status load_weights(LoadedModel& loaded) {
  const auto start = std::chrono::steady_clock::now();
  ProgressLine progress("loading", ProgressLine::Unit::kBytes);
  LoadOptions options;
  options.f32 = loaded.flags.f32;
  options.threads = loaded.flags.threads;
  options.context = loaded.flags.context;
  options.max_context = loaded.traced.max_context;
  options.settings = loaded.flags.settings;
  // The whole context is expanded once a step.
  constexpr std::int64_t kExpandedStep = 2048;
  if (options.settings.expanded_prefill) options.step_tokens = kExpandedStep;
  options.image_token_id = loaded.traced.image_token_id;
  options.progress = [&](std::int64_t done, std::int64_t total) { progress.update(done, total); };
  FL_ASSIGN(loaded.model,
            load_model(loaded.flags, std::move(loaded.traced.graph), loaded.checkpoint, std::move(options)));
  progress.clear();
  for (const std::string& notice : loaded.model->notices()) say_warning(notice);
  FL_ASSIGN(loaded.session, Session::create(*loaded.model));
  loaded.load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return {};
}

}  // namespace firstlight
