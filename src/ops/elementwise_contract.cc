#include "ops/elementwise_contract.h"

namespace firstlight {

Result<std::vector<ValueType>> infer_elementwise(const NodeSpec& node) {
  const std::string_view first = node.contract().inputs[0].name;
  const std::string_view second = node.contract().inputs[1].name;
  const ValueType& a = node.input(first);
  const ValueType& b = node.input(second);
  if (a.dtype != DType::kF32 || !(a == b)) {
    return contract_error(node, "`" + std::string(first) + "` is " + type_text(a) + ", `" +
                                    std::string(second) + "` is " + type_text(b) +
                                    ", both must be the same f32 rows");
  }
  return std::vector<ValueType>{a};
}

}  // namespace firstlight
