#include "ops/silu_mul/op.h"

namespace firstlight {
namespace {

Result<std::vector<ValueType>> infer(const NodeSpec& node) {
  const ValueType& gate = node.input("gate");
  const ValueType& up = node.input("up");
  if (gate.dtype != DType::kF32 || !(gate == up)) {
    return contract_error(node, "`gate` is " + type_text(gate) + ", `up` is " + type_text(up) +
                                    ", both must be the same f32 rows");
  }
  return std::vector<ValueType>{gate};
}

Cost cost(const NodeSpec& node, const StepShape& step) {
  return {.flops = 8 * static_cast<double>(node.input("gate").width() * step.tokens)};
}

}  // namespace

const OpContract& silu_mul_contract() {
  static const OpContract contract{
      .name = "silu_mul",
      .equation = "y = gate sigmoid(gate) up",
      .source = "Shazeer 2020 (SwiGLU)",
      .inputs = {{.name = "gate"}, {.name = "up"}},
      .attributes = {},
      .outputs = {"y"},
      .shard = ShardRule::kRows,
      .infer = infer,
      .cost = cost,
  };
  return contract;
}

}  // namespace firstlight
