#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <new>
#include <string>
#include <system_error>

#include "base/mapped_file.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "cli/version.h"

int main(int argc, char** argv) {
  using namespace firstlight;
  install_interrupt_handler();
  guard_mapped_files();

  CLI::App app("Firstlight runs language models from Hugging Face checkpoint folders.", "firstlight");
  app.require_subcommand(1);
  app.set_version_flag("--version", version_text, "Print what `firstlight version` prints");
  app.footer(
      "`firstlight COMMAND --help` explains a command. Exit codes: 0 success, 1 bad input, 2 bad usage,\n"
      "130 stopped by Ctrl-C.");
  const std::array commands = {add_generate(app),   add_chat(app),   add_inspect(app), add_forward(app),
                               add_quantize(app),   add_bench(app),  add_render(app),  add_tokenize(app),
                               add_detokenize(app), add_version(app)};
  if (argc > 1 && argv[1][0] != '-' && std::none_of(commands.begin(), commands.end(), [&](const Command& c) {
        return c.app->check_name(argv[1]);
      })) {
    std::string names;
    for (const Command& command : commands) names += " " + command.app->get_name();
    say("there is no command " + std::string(argv[1]) + "; the commands are" + names);
    return kExitUsage;
  }
  if (argc > 1 && argv[1][0] == '-' && app.get_option_no_throw(argv[1]) == nullptr) {
    say("there is no flag " + std::string(argv[1]) + " that stands before a command");
    return kExitUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitSuccess : kExitUsage;
  }
  const auto given = std::find_if(commands.begin(), commands.end(),
                                  [](const Command& command) { return command.app->parsed(); });
  try {
    return given->run();
  } catch (const std::bad_alloc&) {
    say_error("out of memory");
    return kExitInput;
  } catch (const std::system_error& error) {  // of threads that could not be started
    say_error(error.what());
    return kExitInput;
  }
}
