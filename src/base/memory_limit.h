// How much memory this process may still use.
#pragma once

#include <cstdint>
#include <string>

namespace firstlight {

/// The smaller of what the system has available (MemAvailable) and what is left in the memory cgroup; a huge
/// number when neither can be read.
std::int64_t available_memory();

/// "1.5 GB" (decimal).
std::string bytes_text(std::int64_t bytes);

}  // namespace firstlight
