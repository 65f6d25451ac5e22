#include "ops/kernel.h"

namespace firstlight {

Result<std::vector<float>> read_all(const WeightSource& weight) {
  std::vector<float> out(static_cast<std::size_t>(weight.elements()));
  FL_TRY(weight.read_rows(0, weight.rows(), out.data()));
  weight.release();
  return out;
}

const std::vector<const WeightSource*>& KernelContext::weight_list(std::string_view slot) const {
  const auto& slots = node.contract().inputs;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].name == slot) return weights[i];
  }
  check(false, "a kernel asks for a weight slot that its contract does not declare");
  return weights.front();
}

}  // namespace firstlight
