#pragma once

#include <string>

namespace firstlight {

/// Version, CPU, kernels and build, one a line: what a bug report needs.
std::string version_text();

}  // namespace firstlight
