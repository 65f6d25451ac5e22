// firstlight quantize: a checkpoint folder written again with its matrices in 8 or 4 bits.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "base/memory_limit.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/config.h"
#include "checkpoint/folder_listing.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/model_flags.h"
#include "cli/terminal.h"
#include "cli/validators.h"
#include "engine/packed_cache.h"
#include "engine/quantise.h"
#include "python/tracer.h"

namespace firstlight {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigName = "config.json";
constexpr const char* kQuantizationKey = "quantization_config";

struct Flags {
  std::string folder;
  std::string out;
  std::string format;
  std::string experts;
  int threads = 0;
};

/// A folder that has a temporary name until it is complete; gone unless committed.
class PendingFolder {
 public:
  explicit PendingFolder(fs::path path)
      : path_(std::move(path)), temporary_(path_.string() + ".tmp-" + std::to_string(::getpid())) {}
  ~PendingFolder() {
    std::error_code ignored;
    if (created_) fs::remove_all(temporary_, ignored);
  }
  PendingFolder(const PendingFolder&) = delete;
  PendingFolder& operator=(const PendingFolder&) = delete;

  [[nodiscard]] const fs::path& temporary() const { return temporary_; }

  Status create() {
    FL_TRY(must_be_free());
    std::error_code failure;
    if (const fs::path parent = path_.parent_path(); !fs::is_directory(parent, failure)) {
      return Error{parent.string() + ": is no folder that exists, and " + path_.filename().string() +
                   " is to be written into it"};
    }
    created_ = fs::create_directory(temporary_, failure);
    if (!created_) {
      return Error{temporary_.string() + ": cannot be created" + (failure ? ": " + failure.message() : "")};
    }
    return {};
  }
  Status commit() {
    FL_TRY(must_be_free());
    std::error_code failure;
    fs::rename(temporary_, path_, failure);
    if (failure) return Error{path_.string() + ": cannot be created: " + failure.message()};
    created_ = false;
    return {};
  }

 private:
  [[nodiscard]] Status must_be_free() const {
    if (!name_is_taken(path_.string())) return {};
    return Error{path_.string() + ": exists, and is not replaced"};
  }

  fs::path path_;
  fs::path temporary_;
  bool created_ = false;
};

Status write_text(const fs::path& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (!out) return Error{path.string() + ": cannot be written"};
  return {};
}

/// config.json with the declaration where this model's family looks for it: at the top, or beside the text
/// model's settings.
Status write_config(const fs::path& from, const fs::path& to, const nlohmann::ordered_json& declaration) {
  FL_ASSIGN(const nlohmann::ordered_json config, read_config((from / kConfigName).string()));
  std::string first_problem;
  for (const char* section : {"", "text_config"}) {
    nlohmann::ordered_json changed = config;
    nlohmann::ordered_json* place = &changed;
    if (*section != '\0') {
      const auto found = changed.find(section);
      if (found == changed.end() || !found->is_object()) continue;
      place = &*found;
    }
    (*place)[kQuantizationKey] = declaration;
    FL_TRY(write_text(to / kConfigName, changed.dump(2) + "\n"));
    const Result<TracedModel> traced = trace_model(to, models_folder());
    if (traced.ok() && traced->graph.quantization().format != WeightFormat::kPlain) return {};
    if (first_problem.empty() && !traced.ok()) first_problem = traced.error().message;
  }
  return Error{from.string() + ": quantised weights of this family are not understood: " + first_problem};
}

/// Tokenizer, template, generation settings and whatever else lies there, byte for byte.
Status copy_others(const fs::path& from, const fs::path& to) {
  std::error_code failure;
  std::error_code ignored;
  fs::directory_iterator entry(from, failure);
  for (; !failure && entry != fs::directory_iterator(); entry.increment(failure)) {
    const std::string name = entry->path().filename().string();
    if (name == kConfigName || name.starts_with('.') || is_weight_file(name) || is_packed_name(name))
      continue;
    if (fs::equivalent(entry->path(), to, ignored)) continue;  // OUT inside of DIR
    if (!fs::is_regular_file(entry->path(), failure)) {
      failure.clear();
      say_warning(entry->path().string() + ": is not a file, and is not copied");
      continue;
    }
    fs::copy_file(entry->path(), to / name, failure);
    if (failure) {
      return Error{entry->path().string() + ": cannot be copied to " + (to / name).string() + ": " +
                   failure.message()};
    }
  }
  if (failure) return Error{from.string() + ": cannot be read: " + failure.message()};
  return {};
}

Status check_space(const fs::path& folder, std::int64_t bytes) {
  std::error_code failure;
  const fs::space_info space = fs::space(folder, failure);
  if (failure || space.available >= static_cast<std::uintmax_t>(bytes)) return {};
  return Error{folder.parent_path().string() + ": " + bytes_text(bytes) + " are needed, and " +
               bytes_text(static_cast<std::int64_t>(space.available)) + " are free"};
}

Status run(const Flags& flags) {
  const fs::path from = flags.folder;
  std::error_code failure;
  fs::path to = fs::absolute(flags.out, failure).lexically_normal();
  if (failure) return Error{"\"" + flags.out + "\": is no path: " + failure.message()};
  if (!to.has_filename()) to = to.parent_path();
  FL_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(flags.folder));
  FL_ASSIGN(const TracedModel traced, trace_model(from, models_folder(), checkpoint.total_bytes()));

  ProgressLine progress("quantising", ProgressLine::Unit::kBytes);
  QuantiseOptions options;
  options.experts = held_as(flags.format.empty() ? flags.experts : flags.format);
  options.weights = flags.format.empty() ? HeldAs::kStored : options.experts;
  options.threads = flags.threads;
  options.progress = [&](std::int64_t done, std::int64_t total) {
    progress.update(done, total);
    return !InterruptScope::requested();
  };
  FL_ASSIGN(const QuantisePlan plan, QuantisePlan::make(traced.graph, checkpoint, std::move(options)));
  PendingFolder folder(to);
  FL_TRY(folder.create());
  FL_TRY(check_space(folder.temporary(), plan.bytes()));
  FL_TRY(write_config(from, folder.temporary(), plan.config()));
  FL_TRY(copy_others(from, folder.temporary()));
  FL_TRY(plan.write(folder.temporary().string()));
  FL_TRY(folder.commit());
  progress.clear();
  for (const std::string& notice : plan.notices()) say_warning(notice);
  say(dimmed(std::to_string(plan.quantised()) + " matrices quantised; " +
             bytes_text(checkpoint.total_bytes()) + " became " + bytes_text(plan.bytes())));
  return {};
}

}  // namespace

Command add_quantize(CLI::App& parent) {
  CLI::App* app =
      parent.add_subcommand("quantize", "Write a checkpoint folder with its matrices in 8 or 4 bits");
  auto flags = std::make_shared<Flags>();
  app->add_option("DIR", flags->folder, "Checkpoint folder")->required()->check(not_empty());
  app->add_option("OUT", flags->out, "Folder to write; must not exist")->required()->check(not_empty());
  CLI::Option* all =
      app->add_option("--format", flags->format,
                      "What all matrices are written as that products in the model's arithmetic read")
          ->check(one_of({"int8", "int4", "mxfp4"}))
          ->type_name("int8|int4|mxfp4");
  app->add_option("--experts", flags->experts,
                  "Write routed experts alone so, and everything else as it is stored")
      ->check(one_of({"int8", "int4", "mxfp4"}))
      ->type_name("int8|int4|mxfp4")
      ->excludes(all);
  app->add_option("--threads", flags->threads, "Threads to round with (default: one a core)")
      ->check(count(1024))
      ->type_name("N");
  return {app, [flags] {
            if (flags->format.empty() && flags->experts.empty()) {
              return usage_failure("quantize", Error{"--format or --experts says what to write"});
            }
            const InterruptScope interrupt(InterruptScope::Signals::kTermination);
            const Status status = run(*flags);
            if (status.ok()) return kExitSuccess;
            return InterruptScope::requested() ? kExitInterrupted : input_failure(status.error());
          }};
}

}  // namespace firstlight
