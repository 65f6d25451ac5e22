#include "base/memory_limit.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>

#include "base/cgroups.h"

namespace firstlight {
namespace {

/// The first number of a one-number file, or -1 ("max", or no such file).
std::int64_t number_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::int64_t value = -1;
  return file >> value ? value : -1;
}

/// The number beside `name` in a file of such pairs; 0 without one.
std::int64_t entry_of(const std::filesystem::path& path, const std::string& name) {
  std::ifstream file(path);
  std::string key;
  std::int64_t value = 0;
  while (file >> key >> value) {
    if (key == name) return value;
  }
  return 0;
}

/// Files of a group: its limit, what it uses, and what of that are pages of files that give way when needed.
struct Version {
  const char* limit;
  const char* used;
  std::string cached;
};
const Version kVersions[] = {{"memory.max", "memory.current", "inactive_file"},
                             {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}};

}  // namespace

std::int64_t available_memory(const std::filesystem::path& root) {
  std::int64_t available = std::numeric_limits<std::int64_t>::max();
  std::ifstream meminfo(root / "proc/meminfo");
  std::string key;
  std::int64_t kib = 0;
  std::string unit;
  while (meminfo >> key >> kib) {
    std::getline(meminfo, unit);
    if (key == "MemAvailable:") available = kib * 1024;
  }
  each_cgroup(root, "memory", [&](const std::filesystem::path& group) {
    for (const auto& [limit_name, used_name, cached_name] : kVersions) {
      const std::int64_t limit = number_in(group / limit_name);
      const std::int64_t used = number_in(group / used_name);
      if (limit < 0 || used < 0) continue;
      const std::int64_t held =
          std::max<std::int64_t>(used - entry_of(group / "memory.stat", cached_name), 0);
      available = std::min(available, std::max<std::int64_t>(limit - held, 0));
    }
  });
  return available;
}

std::string bytes_text(std::int64_t bytes) {
  const char* const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1000 && unit + 1 < std::size(units)) {
    value /= 1000;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return text;
}

}  // namespace firstlight
