// The parts of a contract that operators of two equal values share.
#pragma once

#include "ops/contract.h"

namespace firstlight {

/// Both inputs must be the same f32 rows; the output is like them.
Result<std::vector<ValueType>> infer_elementwise(const NodeSpec& node);

/// `kFlops` operations an element.
template <int kFlops>
Cost elementwise_cost(const NodeSpec& node, const StepShape& step) {
  const ValueType& x = node.input(node.contract().inputs[0].name);
  return {.flops = static_cast<double>(kFlops * x.width() * step.rows(x.rows))};
}

}  // namespace firstlight
