// The processors this process may use: what `taskset`, cgroups and the sharing of cores leave of the machine.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

namespace firstlight {

/// Processors in the affinity mask of the process, one a core first, then their siblings (which share the
/// arithmetic units of a core); each part ascending. `sys` is where the kernel describes the machine.
struct Processors {
  std::vector<int> ids;
  int cores = 1;  // of ids, those that share no core with an earlier one
};
Processors allowed_processors(const std::filesystem::path& sys = "/sys");

/// Processors' worth of time that cgroups (v1 or v2) grant, or none when they set no limit. `root` is
/// prefixed to the paths read (tests).
std::optional<double> processor_quota(const std::filesystem::path& root = "/");

/// How many threads compute by default: one a core, fewer where a quota is smaller (rounded up).
int default_threads();

/// Binds the calling thread to one processor. False where the system refuses: the thread then runs anywhere.
bool pin_to(int processor);

}  // namespace firstlight
