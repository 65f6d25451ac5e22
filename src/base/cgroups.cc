#include "base/cgroups.h"

#include <fstream>
#include <sstream>
#include <string>

namespace firstlight {
namespace {

namespace fs = std::filesystem;

bool lists(const std::string& controllers, std::string_view controller) {
  std::istringstream names(controllers);
  std::string name;
  while (std::getline(names, name, ',')) {
    if (name == controller) return true;
  }
  return false;
}

}  // namespace

void each_cgroup(const fs::path& root, std::string_view controller,
                 const std::function<void(const fs::path&)>& take) {
  std::ifstream groups(root / "proc/self/cgroup");  // lines "0::/a/b" or "4:cpu,cpuacct:/a/b"
  std::string line;
  while (std::getline(groups, line)) {
    std::istringstream fields(line);
    std::string number;
    std::string controllers;
    std::string path;
    if (!std::getline(fields, number, ':') || !std::getline(fields, controllers, ':')) continue;
    std::getline(fields, path);
    const bool v2 = controllers.empty();
    if (!v2 && !lists(controllers, controller)) continue;
    const fs::path top = root / "sys/fs/cgroup" / (v2 ? "" : controllers);
    for (fs::path at = fs::path(path).relative_path();; at = at.parent_path()) {
      take(top / at);
      if (at.empty()) break;
    }
  }
  // In a container the path is often that outside of it.
  take(root / "sys/fs/cgroup");
  take(root / "sys/fs/cgroup" / controller);
}

}  // namespace firstlight
