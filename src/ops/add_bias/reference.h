// The executable specification of add_bias.
#pragma once

namespace firstlight::reference {

inline double add_bias(double x, double bias) { return x + bias; }

}  // namespace firstlight::reference
