// Anonymous memory straight from the system, zeroed, in being as it is touched.
#pragma once

#include <cstddef>
#include <cstdint>

namespace firstlight {

/// Pages of this size save most of the address translations of weights and caches that are read in order.
inline constexpr std::int64_t kHugePage = std::int64_t{2} << 20;

/// `bytes` > 0 of memory, or null when there is none. From kHugePage on it is aligned to that and asks for
/// huge pages: a hint, whose failure costs speed only.
std::byte* map_zeroed(std::int64_t bytes);
/// Gives back what map_zeroed returned for the same number of bytes.
void unmap(std::byte* memory, std::int64_t bytes);

}  // namespace firstlight
