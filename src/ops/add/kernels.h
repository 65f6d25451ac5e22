// Table of the add kernels, one an instruction set.
#pragma once

#include "ops/dispatch.h"
#include "ops/elementwise.h"

namespace firstlight {

FL_DECLARE_TABLES(ElementwiseKernels, kAddKernels)

}  // namespace firstlight
