// The executable specification of add.
#pragma once

namespace firstlight::reference {

/// spec kimi 3.2.
inline double add(float a, float b) { return static_cast<double>(a) + b; }

}  // namespace firstlight::reference
