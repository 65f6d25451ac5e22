#include "ops/rope/op.h"

namespace firstlight {
namespace {

Result<std::vector<ValueType>> infer(const NodeSpec& node) {
  const ValueType& x = node.input("x");
  const ValueType& angles = node.input("angles");
  for (const char* name : {"x", "angles"}) {
    const ValueType& v = node.input(name);
    if (v.dtype != DType::kF32 || v.rows != Rows::kTokens || v.width() < 1) {
      return contract_error(
          node, std::string("`") + name + "` must be f32 with a row a token, it is " + type_text(v));
    }
  }
  const std::string& layout = node.text("layout");
  if (layout != "half" && layout != "interleaved") {
    return contract_error(node,
                          "attribute `layout` must be \"half\" or \"interleaved\", got \"" + layout + "\"");
  }
  const std::int64_t heads = node.integer("heads");
  if (heads < 1 || x.width() % heads != 0) {
    return contract_error(node, "`x` of width " + std::to_string(x.width()) + " does not divide into " +
                                    std::to_string(heads) + " heads");
  }
  const std::int64_t dim = x.width() / heads;
  const std::int64_t offset = node.integer("offset");
  if (angles.width() % 2 != 0 || offset < 0 || offset > dim || angles.width() > dim - offset) {
    return contract_error(node, "`angles` of width " + std::to_string(angles.width()) + " at offset " +
                                    std::to_string(offset) + " do not fit a head of " + std::to_string(dim) +
                                    " channels");
  }
  return std::vector<ValueType>{x};
}

Cost cost(const NodeSpec& node, const StepShape& step) {
  return {.flops = 3 * static_cast<double>(node.input("angles").width() * node.integer("heads")) *
                   static_cast<double>(step.tokens)};
}

}  // namespace

const OpContract& rope_contract() {
  static const OpContract contract{
      .name = "rope",
      .equation = "(a, b) = (a cos - b sin, b cos + a sin) for each pair of channels of each head",
      .source = "RoFormer, arXiv 2104.09864, section 3.4",
      .inputs = {{.name = "x"}, {.name = "angles"}},
      .attributes = {{"heads", AttributeType::kInt, "heads of x, all rotated alike"},
                     {"layout", AttributeType::kText,
                      "pairs: \"half\" (i, i + n) or \"interleaved\" (2i, 2i + 1)"},
                     {"offset", AttributeType::kInt, "first rotated channel of a head",
                      Attribute{std::int64_t{0}}}},
      .outputs = {"y"},
      .shard = ShardRule::kHeads,
      .infer = infer,
      .cost = cost,
  };
  return contract;
}

}  // namespace firstlight
