#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "engine/ops.h"
#include "tests/engine/ops/op_testing.h"

namespace chargrad::tests {
namespace {

using testing::ElementsAre;

TEST(Compare, AllSixOnEveryDtype) {
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16, kInt64}) {
    const Tensor a = tensor({1, 2, 3}, dtype), b = tensor({2, 2, 2}, dtype);
    EXPECT_THAT(values(eq(a, b)), ElementsAre(0, 1, 0));
    EXPECT_THAT(values(ne(a, b)), ElementsAre(1, 0, 1));
    EXPECT_THAT(values(lt(a, b)), ElementsAre(1, 0, 0));
    EXPECT_THAT(values(le(a, b)), ElementsAre(1, 1, 0));
    EXPECT_THAT(values(gt(a, b)), ElementsAre(0, 0, 1));
    EXPECT_THAT(values(ge(a, b)), ElementsAre(0, 1, 1));
    EXPECT_EQ(eq(a, b).dtype(), kBool);
    EXPECT_THAT(values(eq(a, 2)), ElementsAre(0, 1, 0));
    EXPECT_THAT(values(ne(a, 2)), ElementsAre(1, 0, 1));
    EXPECT_THAT(values(lt(a, 2.5)), ElementsAre(1, 1, 0));
    EXPECT_THAT(values(le(a, 2)), ElementsAre(1, 1, 0));
    EXPECT_THAT(values(gt(a, 2.5)), ElementsAre(0, 0, 1));
    EXPECT_THAT(values(ge(a, 2)), ElementsAre(0, 1, 1));
  }
  const Tensor flags = tensor({0, 1}, kBool);
  EXPECT_THAT(values(eq(flags, tensor({1, 1}, kBool))), ElementsAre(0, 1));
  EXPECT_THAT(values(lt(flags, 1)), ElementsAre(1, 0));
}

TEST(Compare, LargeIntegersAreExact) {
  const Tensor x = from_vector(std::vector<int64_t>{(int64_t{1} << 53) + 1}, {1});
  EXPECT_EQ(eq(x, 0x1p53).item(), 0);
  EXPECT_EQ(gt(x, 0x1p53).item(), 1);
}

TEST(Compare, BroadcastsAndTakesStrides) {
  const Tensor column = transpose(tensor({{1, 2, 3}}), 0, 1);  // (3, 1)
  EXPECT_THAT(values(lt(column, tensor({2, 3}))), ElementsAre(1, 1, 0, 1, 0, 0));
  EXPECT_EQ(eq(ones({0, 2}), 1).shape(), (Shape{0, 2}));
}

TEST(Compare, NanIsUnequalToItself) {
  const Tensor nan = scalar(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(eq(nan, nan).item(), 0);
  EXPECT_EQ(ne(nan, nan).item(), 1);
}

TEST(Compare, ResultsHaveNoGradient) {
  Tensor x = ones({2});
  x.set_requires_grad();
  EXPECT_FALSE(eq(x, 1).requires_grad());
  EXPECT_FALSE(lt(x, x).requires_grad());
}

TEST(Compare, Errors) {
  EXPECT_THAT([] { eq(ones({2}), ones({3})); },
              throws("eq: sizes must be equal or 1 to broadcast, got shapes [2] and [3]"));
}

}  // namespace
}  // namespace chargrad::tests
