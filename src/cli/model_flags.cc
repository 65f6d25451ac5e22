#include "cli/model_flags.h"

#include <CLI/CLI.hpp>
#include <string>

#include "cli/validators.h"

namespace firstlight {

void add_model_flags(CLI::App& app, ModelFlags& flags) {
  app.add_option("DIR", flags.folder, "Checkpoint folder (config.json, *.safetensors, tokenizer files)")
      ->required();
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
}

}  // namespace firstlight
