// The control groups that this process is in.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

namespace firstlight {

/// Calls take(folder) for the folder of each group that `controller` ("cpu", "memory") limits this process
/// by, and of each group above it, whose limits hold too: of version 2 and version 1, below `root`. A folder
/// need not exist.
void each_cgroup(const std::filesystem::path& root, std::string_view controller,
                 const std::function<void(const std::filesystem::path&)>& take);

}  // namespace firstlight
