// The subcommands, one file each: cli/<name>.cc defines add_<name>. This header keeps CLI11, which is slow to
// compile, out of what does not need it.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace firstlight {

inline constexpr int kExitSuccess = 0;
inline constexpr int kExitInput = 1;          // a file, a model, a prompt or the machine is not as it must be
inline constexpr int kExitUsage = 2;          // the command line is not, whatever it names
inline constexpr int kExitInterrupted = 130;  // Ctrl-C: what a shell reports for it

struct Command {
  CLI::App* app = nullptr;   // its subcommand
  std::function<int()> run;  // called after parsing if the subcommand was given; the exit code
};

Command add_bench(CLI::App& parent);
Command add_chat(CLI::App& parent);
Command add_detokenize(CLI::App& parent);
Command add_forward(CLI::App& parent);
Command add_generate(CLI::App& parent);
Command add_inspect(CLI::App& parent);
Command add_quantize(CLI::App& parent);
Command add_render(CLI::App& parent);
Command add_tokenize(CLI::App& parent);
Command add_version(CLI::App& parent);

}  // namespace firstlight
