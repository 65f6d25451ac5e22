// Counts calls of operator new in the whole test program.
#pragma once

#include <cstdint>

namespace firstlight::testing {

std::int64_t allocation_count();

}  // namespace firstlight::testing
