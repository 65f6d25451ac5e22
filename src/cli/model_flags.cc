#include "cli/model_flags.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>

#include "checkpoint/folder_listing.h"
#include "cli/validators.h"
#include "engine/inert_settings.h"

namespace firstlight {

HeldAs held_as(const std::string& name) {
  return name == "int8" ? HeldAs::kInt8 : name == "int4" ? HeldAs::kInt4 : HeldAs::kMxfp4;
}

namespace {

void add_settings_flags(CLI::App& app, RunSettings& settings) {
  // Options are applied in the order in which they stand here: that of the experts has the last word.
  app.add_option_function<std::string>(
         "--quantize",
         [&settings](const std::string& name) { settings.experts = settings.weights = held_as(name); },
         "Hold weights in 8 or 4 bits, and multiply them with activations of 16 or 8 bits (default: as the "
         "checkpoint has them, and bf16)")
      ->check(one_of({"int8", "int4", "mxfp4"}))
      ->type_name("int8|int4|mxfp4");
  app.add_option_function<std::string>(
         "--quantize-experts", [&settings](const std::string& name) { settings.experts = held_as(name); },
         "The same for routed experts alone, whatever --quantize says of the rest")
      ->check(one_of({"int8", "int4", "mxfp4"}))
      ->type_name("int8|int4|mxfp4");
  app.add_option_function<std::string>(
         "--activations", [&settings](const std::string& bits) { settings.wide_activations = bits == "16"; },
         "Bits of what 8-bit weights outside of experts are multiplied with: 16 (default), or 8, faster in "
         "prompts "
         "and less exact")
      ->check(one_of({"16", "8"}))
      ->type_name("16|8");
  app.add_option_function<std::string>(
         "--mla-prefill",
         [&settings](const std::string& name) { settings.expanded_prefill = name == "expanded"; },
         "Latent attention of prompts: absorbed (default), or expanded, faster for prompts of hundreds of "
         "tokens in long contexts, slower for short ones; a token then gets other roundings as part of a "
         "prompt than when generated, still the same however the prompt is cut")
      ->check(one_of({"absorbed", "expanded"}))
      ->type_name("absorbed|expanded");
  app.add_option_function<std::string>(
         "--key-search",
         [&settings](const std::string& name) {
           settings.key_search = name == "full"        ? KeySearch::kFull
                                 : name == "two-stage" ? KeySearch::kTwoStage
                                                       : KeySearch::kCertified;
         },
         "Sparse attention finds its keys by 8-bit scores with error bounds (certified, default), by scoring "
         "all (full; the same choice), or in the pages whose mean scores best (two-stage; not the same)")
      ->check(one_of({"certified", "full", "two-stage"}))
      ->type_name("certified|full|two-stage");
  app.add_option("--candidates", settings.candidates, "Keys that two-stage scores exactly (default: 16384)")
      ->check(count(1 << 30))
      ->type_name("N");
  app.add_option("--min-context", settings.min_context,
                 "Tokens up to which two-stage searches as certified does (default: 65536)")
      ->check(count())
      ->type_name("N");
}

}  // namespace

void add_model_flags(CLI::App& app, ModelFlags& flags) {
  app.add_option("DIR", flags.folder, "Checkpoint folder (config.json, *.safetensors, tokenizer files)")
      ->required()
      ->check(not_empty());
  app.add_option_function<std::string>(
         "--dtype", [&flags](const std::string& name) { flags.f32 = name == "f32"; },
         "Arithmetic and caches: bf16 (default), or f32, slower and more exact")
      ->check(one_of({"bf16", "f32"}))
      ->type_name("bf16|f32");
  app.add_option("--threads", flags.threads, "Threads to compute with (default: one a core)")
      ->check(count(1024))
      ->type_name("N");
  app.add_option(
         "--ctx", flags.context,
         "Tokens that prompt and answer may have together (default: the model's maximum, or what fits "
         "into memory)")
      ->check(count())
      ->type_name("N");
  app.add_option_function<std::string>(
         "--load-format", [&flags](const std::string& name) { flags.dummy = name == "dummy"; },
         "Where weights come from: the folder's files (auto, default), or nowhere: random numbers in the "
         "formats that config.json declares (dummy), to measure a model without its weights")
      ->check(one_of({"auto", "dummy"}))
      ->type_name("auto|dummy");
  app.add_option_function<std::string>(
         "--packed-cache",
         [&flags](const std::string& where) {
           using When = KeepPacked::When;
           flags.keep_packed.when = where == "off"    ? When::kNever
                                    : where == "auto" ? When::kIfItPays
                                                      : When::kAlways;
           flags.keep_packed.folder = where == "off" || where == "auto" ? "" : where;
         },
         "Where weights are kept as they lie in memory, so that the next start reads them from there: beside "
         "the "
         "checkpoint when that pays (auto, default: 256 MB or more, in clearly fewer bits than they are "
         "stored in), "
         "nowhere (off), or always in a folder of yours")
      ->check(not_empty())
      ->type_name("auto|off|FOLDER");
  add_settings_flags(app, flags.settings);
}

Status check_model_flags(const ModelFlags& flags) {
  if (flags.dummy && flags.keep_packed.when == KeepPacked::When::kAlways) {
    return Error{"--packed-cache names a folder, but the weights of --load-format dummy are not kept"};
  }
  return check_together(flags.settings, flags.f32);
}

Status check_not_of_checkpoint(const std::string& path, const std::string& folder) {
  const auto belongs = [](const std::string& name) {
    return is_weight_file(name) || name == "config.json" || name == "generation_config.json" ||
           name.starts_with("tokenizer") || name.starts_with("chat_template") || name.ends_with(".model");
  };
  std::error_code failure;
  std::filesystem::directory_iterator entry(folder, failure);
  for (; !failure && entry != std::filesystem::directory_iterator(); entry.increment(failure)) {
    std::error_code none;
    if (belongs(entry->path().filename().string()) &&
        std::filesystem::equivalent(entry->path(), path, none)) {
      return Error{path + ": is a file of the checkpoint, and is not replaced"};
    }
  }
  return {};
}

}  // namespace firstlight
