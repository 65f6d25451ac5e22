#pragma once

#include <cstdint>

namespace firstlight {

/// The smallest multiple of `to` > 0 that is not below n >= 0.
constexpr std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

}  // namespace firstlight
