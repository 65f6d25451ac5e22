#include <gtest/gtest.h>

#include <cmath>

#include "ops/rope/op.h"
#include "ops/rope/reference.h"
#include "ops/step_testing.h"

namespace firstlight {
namespace {

using testing::Random;
using testing::TestOp;
using testing::Words;

TestOp make_op(std::int64_t heads, std::int64_t dim, std::int64_t rotated, std::int64_t offset,
               const std::string& layout) {
  TestOp op(rope_contract(), make_rope_cpu);
  op.value("x", heads * dim).value("angles", rotated);
  op.set("heads", heads).set("layout", layout).set("offset", offset);
  return op;
}

TEST(Rope, AgreesWithTheReferenceHoweverItIsRun) {
  Random random(1);
  for (int draw = 0; draw < 40; ++draw) {
    const std::int64_t heads = random.between(1, 5);
    const std::int64_t pairs = random.between(1, 40);
    const std::int64_t offset = random.between(0, 20);
    const std::int64_t dim = offset + 2 * pairs + random.between(0, 20);
    const bool interleaved = random.between(0, 1) == 1;
    constexpr std::int64_t kRows = 4;
    const Words x = random.normals(kRows * heads * dim, draw % 7 == 0 ? 1e18 : 1.0);
    Words angles;
    for (std::int64_t r = 0; r < kRows; ++r) {
      Words sines;
      for (std::int64_t i = 0; i < pairs; ++i) {
        const double angle = random.normal() * 10;
        angles.push_back(static_cast<float>(std::cos(angle)));
        sines.push_back(static_cast<float>(std::sin(angle)));
      }
      angles.insert(angles.end(), sines.begin(), sines.end());
    }
    const TestOp op = make_op(heads, dim, 2 * pairs, offset, interleaved ? "interleaved" : "half");
    const Words y = testing::expect_rows_alone_decide(op, {x, angles}, kRows)[0];
    for (std::int64_t h = 0; h < kRows * heads; ++h) {
      const Words head = testing::rows_of(x, kRows * heads, h, 1);
      const std::vector<double> want = reference::rope(head, testing::rows_of(angles, kRows, h / heads, 1),
                                                       interleaved, static_cast<std::size_t>(offset));
      EXPECT_LT(testing::relative_error(testing::rows_of(y, kRows * heads, h, 1), want), 2e-7);
    }
  }
}

TEST(Rope, NamesWhatIsWrong) {
  const auto message = [](const TestOp& op) {
    const auto types = op.infer();
    return types.ok() ? "accepted" : types.error().message;
  };
  EXPECT_EQ(message(make_op(2, 8, 8, 0, "half")), "accepted");
  EXPECT_EQ(message(make_op(2, 8, 8, 1, "half")),
            "rope: `angles` of width 8 at offset 1 do not fit a head of 8 channels");
  EXPECT_EQ(message(make_op(2, 8, 3, 0, "half")),
            "rope: `angles` of width 3 at offset 0 do not fit a head of 8 channels");
  EXPECT_EQ(message(make_op(2, 8, 4, 0, "pairs")),
            "rope: attribute `layout` must be \"half\" or \"interleaved\", got \"pairs\"");
}

}  // namespace
}  // namespace firstlight
