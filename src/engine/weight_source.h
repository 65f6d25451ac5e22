// A weight of a checkpoint as the operators see it.
#pragma once

#include <memory>

#include "checkpoint/weights.h"
#include "ops/kernel.h"

namespace firstlight {

std::unique_ptr<WeightSource> make_weight_source(WeightData data);

}  // namespace firstlight
