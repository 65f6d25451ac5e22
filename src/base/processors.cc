#include "base/processors.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <string>

#include "base/cgroups.h"

namespace firstlight {
namespace {

namespace fs = std::filesystem;

constexpr int kMostProcessors = 8192;

std::vector<int> affinity_mask() {
  std::vector<int> ids;
  cpu_set_t* const set = CPU_ALLOC(kMostProcessors);
  if (set == nullptr) return ids;
  const std::size_t size = CPU_ALLOC_SIZE(kMostProcessors);
  CPU_ZERO_S(size, set);
  if (sched_getaffinity(0, size, set) == 0) {
    for (int id = 0; id < kMostProcessors; ++id) {
      if (CPU_ISSET_S(static_cast<std::size_t>(id), size, set)) ids.push_back(id);
    }
  }
  CPU_FREE(set);
  return ids;
}

/// The kernel's text for the processors of one core, e.g. "0,64"; empty when it does not say.
std::string siblings(const fs::path& sys, int id) {
  std::ifstream file(sys / "devices/system/cpu" / ("cpu" + std::to_string(id)) /
                     "topology/thread_siblings_list");
  std::string list;
  std::getline(file, list);
  return list;
}

/// Quota over period of a cgroup's folder; none without a limit.
std::optional<double> quota_in(const fs::path& folder) {
  double quota = 0;
  double period = 0;
  std::ifstream v2(folder / "cpu.max");  // "max 100000" or "150000 100000"
  if (v2 >> quota >> period && quota > 0 && period > 0) return quota / period;
  std::ifstream v1_quota(folder / "cpu.cfs_quota_us");
  std::ifstream v1_period(folder / "cpu.cfs_period_us");
  if (v1_quota >> quota && v1_period >> period && quota > 0 && period > 0) return quota / period;
  return std::nullopt;
}

}  // namespace

Processors allowed_processors(const fs::path& sys) {
  Processors p;
  const std::vector<int> ids = affinity_mask();
  std::set<std::string> seen;
  std::vector<int> rest;
  for (const int id : ids) {
    const std::string core = siblings(sys, id);
    if (core.empty() || seen.insert(core).second) {
      p.ids.push_back(id);
    } else {
      rest.push_back(id);
    }
  }
  p.cores = std::max(1, static_cast<int>(p.ids.size()));
  p.ids.insert(p.ids.end(), rest.begin(), rest.end());
  return p;
}

std::optional<double> processor_quota(const fs::path& root) {
  std::optional<double> least;
  const auto take = [&](const fs::path& folder) {
    const std::optional<double> q = quota_in(folder);
    if (q && (!least || *q < *least)) least = q;
  };
  each_cgroup(root, "cpu", take);
  return least;
}

int default_threads() {
  int threads = allowed_processors().cores;
  if (const std::optional<double> quota = processor_quota()) {
    threads = std::min(threads, static_cast<int>(std::ceil(std::min(*quota, 1e6))));
  }
  return std::max(1, threads);
}

bool pin_to(int processor) {
  cpu_set_t* const set = CPU_ALLOC(kMostProcessors);
  if (set == nullptr || processor < 0 || processor >= kMostProcessors) {
    if (set != nullptr) CPU_FREE(set);
    return false;
  }
  const std::size_t size = CPU_ALLOC_SIZE(kMostProcessors);
  CPU_ZERO_S(size, set);
  CPU_SET_S(static_cast<std::size_t>(processor), size, set);
  const bool done = sched_setaffinity(0, size, set) == 0;
  CPU_FREE(set);
  return done;
}

}  // namespace firstlight
