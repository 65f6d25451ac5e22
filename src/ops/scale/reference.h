// The executable specification of scale.
#pragma once

namespace firstlight::reference {

inline double scale(double x, double factor) { return x * static_cast<double>(static_cast<float>(factor)); }

}  // namespace firstlight::reference
