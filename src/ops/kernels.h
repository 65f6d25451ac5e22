// CPU implementations by operator name; the counterpart of registry.h for the engine.
#pragma once

#include <string_view>

#include "ops/kernel.h"

namespace firstlight {

/// How to make the CPU kernel of an operator, or an Error when there is none.
Result<MakeKernel> cpu_kernel(std::string_view op);

}  // namespace firstlight
