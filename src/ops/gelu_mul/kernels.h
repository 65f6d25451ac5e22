// Table of the gelu_mul kernels, one an instruction set.
#pragma once

#include "ops/dispatch.h"
#include "ops/elementwise.h"

namespace firstlight {

FL_DECLARE_TABLES(ElementwiseKernels, kGeluMulKernels)

}  // namespace firstlight
