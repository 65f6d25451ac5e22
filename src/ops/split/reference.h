// The executable specification of split.
#pragma once

#include <span>
#include <utility>
#include <vector>

namespace firstlight::reference {

/// x [width] -> left [at], right [width - at]. spec kimi 3.4.
inline std::pair<std::vector<float>, std::vector<float>> split(std::span<const float> x, std::size_t at) {
  return {{x.begin(), x.begin() + static_cast<std::ptrdiff_t>(at)},
          {x.begin() + static_cast<std::ptrdiff_t>(at), x.end()}};
}

}  // namespace firstlight::reference
