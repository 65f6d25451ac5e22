// How much memory this process may still use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace firstlight {

/// The smallest of what the system has available (MemAvailable) and what is left in each memory cgroup of
/// this process; a huge number when none can be read. `root` is where /proc and /sys are.
std::int64_t available_memory(const std::filesystem::path& root = "/");

/// "1.5 GB" (decimal).
std::string bytes_text(std::int64_t bytes);

}  // namespace firstlight
