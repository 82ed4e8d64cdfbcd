#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "engine/ops.h"
#include "tests/engine/ops/op_testing.h"

namespace chargrad::tests {
namespace {

using testing::ElementsAre;

constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(Where, EveryDtype) {
  const Tensor condition = tensor({1, 0, 1}, kBool);
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16, kInt64, kBool}) {
    const Tensor y = where(condition, tensor({1, 1, 0}, dtype), tensor({0, 0, 1}, dtype));
    EXPECT_EQ(y.dtype(), dtype);
    EXPECT_THAT(values(y), ElementsAre(1, 0, 0));
  }
  EXPECT_EQ(where(condition, ones({3}, kInt64), scalar(0.5)).dtype(), kFloat32);
}

TEST(Where, BroadcastsAllThree) {
  const Tensor condition = unsqueeze(tensor({1, 0}, kBool), 1);  // (2, 1)
  Tensor a = tensor({1, 2, 3}), b = scalar(9);
  a.set_requires_grad();
  b.set_requires_grad();
  const Tensor y = where(condition, a, b);
  EXPECT_EQ(y.shape(), (Shape{2, 3}));
  EXPECT_THAT(values(y), ElementsAre(1, 2, 3, 9, 9, 9));
  y.backward(tensor({{1, 2, 3}, {4, 5, 6}}));
  EXPECT_THAT(values(a.grad()), ElementsAre(1, 2, 3));
  EXPECT_THAT(values(b.grad()), ElementsAre(15));
}

// What is not chosen does not reach the gradient, be it NaN.
TEST(Where, TheOtherSideDoesNotLeak) {
  const auto f = [](const Tensor& x) { return where(gt(x, 0), log(x), zeros_like(x)); };
  const Tensor x = tensor({1, 2}, kFloat64);
  EXPECT_THAT(values(gradient(f, x, ones({2}, kFloat64))), ElementsAre(1, 0.5));
}

// x = [1, 2, 3] with the middle one at minus infinity: p = (.1192, 0, .8808), and the first
// component's gradient is p0 (1 - p0) = .1050, 0, -p0 p2 = -.1050.
TEST(MaskedFill, GradientThroughSoftmax) {
  const auto first = [](const Tensor& mask) {
    return
        [mask](const Tensor& x) { return narrow(softmax(masked_fill(x, mask, -kInf)), -1, 0, 1); };
  };
  const Tensor mask = tensor({0, 1, 0}, kBool);
  const Tensor dx = gradient(first(mask), tensor({1, 2, 3}), ones({1}));
  EXPECT_THAT(values(dx), near({0.104994, 0, -0.104994}, 1e-6));
  EXPECT_EQ(dx.item({1}), 0);
  // (1, 3) beside (2, 3).
  const Tensor rows =
      gradient(first(unsqueeze(mask, 0)), tensor({{1, 2, 3}, {1, 2, 3}}), ones({2, 1}));
  EXPECT_THAT(values(rows), near({0.104994, 0, -0.104994, 0.104994, 0, -0.104994}, 1e-6));
}

TEST(MaskedFill, EveryDtype) {
  const Tensor mask = tensor({0, 1}, kBool);
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16, kInt64, kBool}) {
    const Tensor y = masked_fill(tensor({1, 0}, dtype), mask, 1);
    EXPECT_EQ(y.dtype(), dtype);
    EXPECT_THAT(values(y), ElementsAre(1, 1));
  }
}

TEST(MaskedFill, IntegersLoseTheFraction) {
  const Tensor y = masked_fill(ones({2}, kInt64), tensor({0, 1}, kBool), -2.5);
  EXPECT_THAT(values(y), ElementsAre(1, -2));
}

TEST(Where, Errors) {
  const Tensor x = ones({2, 3});
  EXPECT_THAT([&] { where(x, x, x); }, throws("where: condition must be bool, got float32"));
  EXPECT_THAT([&] { where(ones({4}, kBool), x, x); },
              throws("where: sizes must be equal or 1 to broadcast, got shapes [4] and [2, 3]"));
  EXPECT_THAT([&] { masked_fill(x, x, 0); }, throws("masked_fill: mask must be bool, got float32"));
  EXPECT_THAT(
      [&] {
        masked_fill(x, ones({4, 2, 3}, kBool), 0);
      },
      throws("masked_fill: the mask must broadcast to the input, got mask [4, 2, 3] and "
             "input [2, 3]"));
  EXPECT_THAT([&] { masked_fill(ones({2}, kInt64), ones({2}, kBool), -kInf); },
              throws("masked_fill: -inf does not fit into int64"));
}

}  // namespace
}  // namespace chargrad::tests
