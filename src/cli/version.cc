#include "cli/version.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "device/cpu/isa.h"

namespace firstlight {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text.empty() ? "none" : text;
}

}  // namespace

std::string version_text() {
  std::vector<std::string> available;
  for (const Isa isa : available_isas()) available.emplace_back(isa_name(isa));
  const auto chosen = choose_isa();
  const std::string kernels = chosen ? std::string(isa_name(*chosen)) : "none, " + chosen.error().message;
  return "firstlight " FL_VERSION "\ncpu:     " + joined(cpu_features()) + "\nkernels: " + kernels +
         " (this CPU can run " + joined(available) + "; FIRSTLIGHT_ISA chooses)" +
         "\nbuild:   " FL_BUILD_FLAGS;
}

Command add_version(CLI::App& parent) {
  CLI::App* app =
      parent.add_subcommand("version", "Print version, CPU features, chosen kernels and build flags");
  return {app, [] {
            std::puts(version_text().c_str());
            return kExitSuccess;
          }};
}

}  // namespace firstlight
