// A weight of a checkpoint as the operators see it.
#pragma once

#include <functional>
#include <memory>

#include "checkpoint/weights.h"
#include "ops/kernel.h"

namespace firstlight {

/// `released` is called when a kernel has taken what it needs of the weight.
std::unique_ptr<WeightSource> make_weight_source(WeightData data,
                                                 std::function<void(const WeightData&)> released);

}  // namespace firstlight
