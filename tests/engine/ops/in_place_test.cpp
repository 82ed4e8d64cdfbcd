#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/ops.h"
#include "tests/engine/ops/op_testing.h"

namespace chargrad::tests {
namespace {

using testing::Each;
using testing::ElementsAre;

TEST(InPlace, FillZeroAndViews) {
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16, kInt64, kBool}) {
    const Tensor x = zeros({2, 3}, dtype);
    EXPECT_EQ(fill_(x, 1).impl(), x.impl());
    EXPECT_THAT(values(x), Each(1));
    zero_(select(x, 1, 0));
    EXPECT_THAT(values(x), ElementsAre(0, 1, 1, 0, 1, 1));
  }
}

TEST(InPlace, FillOfIntegersLosesTheFraction) {
  EXPECT_THAT(values(fill_(zeros({2}, kInt64), 1.7)), Each(1));
  EXPECT_THAT(values(fill_(zeros({2}, kInt64), -1.7)), Each(-1));
}

TEST(InPlace, CopyBroadcastsAndConverts) {
  const Tensor x = zeros({2, 2});
  copy_(transpose(x, 0, 1), unsqueeze(tensor({1, 2}, kInt64), 1));
  EXPECT_THAT(values(x), ElementsAre(1, 2, 1, 2));
  copy_(x, scalar(3, kFloat64));
  EXPECT_THAT(values(x), Each(3));
}

TEST(InPlace, CopyBetweenOverlappingViews) {
  const Tensor x = tensor({1, 2, 3, 4});
  copy_(narrow(x, 0, 1, 3), narrow(x, 0, 0, 3));
  EXPECT_THAT(values(x), ElementsAre(1, 1, 2, 3));
  const Tensor square = tensor({{1, 2}, {3, 4}});
  copy_(square, transpose(square, 0, 1));
  EXPECT_THAT(values(square), ElementsAre(1, 3, 2, 4));
}

TEST(InPlace, AddAndMul) {
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16, kInt64}) {
    const Tensor x = tensor({{1, 2}, {3, 4}}, dtype);
    add_(x, tensor({10, 20}, dtype));
    EXPECT_THAT(values(x), ElementsAre(11, 22, 13, 24));
    add_(x, tensor({1, 1}, kInt64), -2);
    EXPECT_THAT(values(x), ElementsAre(9, 20, 11, 22));
    mul_(transpose(x, 0, 1), 3);
    EXPECT_THAT(values(x), ElementsAre(27, 60, 33, 66));
    EXPECT_EQ(x.dtype(), dtype);
  }
  const Tensor square = tensor({{1, 2}, {3, 4}});
  add_(square, transpose(square, 0, 1));
  EXPECT_THAT(values(square), ElementsAre(2, 5, 5, 8));
  add_(square, square);
  EXPECT_THAT(values(square), ElementsAre(4, 10, 10, 16));
}

TEST(InPlace, RaisesTheVersionOfEveryView) {
  const Tensor x = zeros({4}), part = narrow(x, 0, 0, 2);
  const auto before = x.version();
  fill_(part, 1);
  zero_(part);
  copy_(part, ones({2}));
  add_(part, ones({2}));
  mul_(part, 2);
  EXPECT_EQ(x.version(), before + 5);
}

TEST(InPlace, BackwardRefusesASavedTensorThatWasChanged) {
  Tensor x = tensor({1, 2});
  x.set_requires_grad();
  const Tensor w = tensor({3, 4});
  const Tensor y = sum(x * w);
  mul_(w, 2);
  EXPECT_THAT([&] { y.backward(); },
              throws("backward: a tensor of shape [2] saved by op 'mul' was changed in place since "
                     "then (version 1, saved at 0)"));
}

TEST(InPlace, BackwardRefusesAChangedOutput) {
  Tensor x = tensor({1, 2});
  x.set_requires_grad();
  const Tensor y = exp(x);
  {
    const NoGradGuard no_grad;
    mul_(y, 2);
  }
  EXPECT_THAT([&] { sum(y).backward(); },
              throws("backward: a tensor of shape [2] saved by op 'exp' was changed in place since "
                     "then (version 1, saved at 0)"));
}

TEST(InPlace, AStepUnderNoGradKeepsTheParameterALeaf) {
  Tensor w = tensor({1, 2});
  w.set_requires_grad();
  sum(w * w).backward();
  {
    const NoGradGuard no_grad;
    add_(w, w.grad(), -0.25);
  }
  EXPECT_TRUE(w.is_leaf());
  EXPECT_THAT(values(w), ElementsAre(0.5, 1));
  w.set_grad({});
  sum(w * w).backward();
  EXPECT_THAT(values(w.grad()), ElementsAre(1, 2));
}

TEST(InPlace, Errors) {
  Tensor x = ones({2, 3});
  EXPECT_THAT(
      [&] {
        copy_(x, ones({4, 2, 3}));
      },
      throws("copy_: the source must broadcast to the tensor, got source [4, 2, 3] and "
             "[2, 3]"));
  EXPECT_THAT([&] { add_(x, ones({2})); },
              throws("add_: sizes must be equal or 1 to broadcast, got shapes [2, 3] and [2]"));
  EXPECT_THAT([&] { fill_(ones({1}, kInt64), NAN); }, throws("fill_: nan does not fit into int64"));
  EXPECT_THAT([&] { fill_(ones({1}, kInt64), 1e30); },
              throws("fill_: 1e+30 does not fit into int64"));
  EXPECT_THAT([&] { add_(ones({1}, kInt64), ones({1})); },
              throws("add_: 1 times a float32 cannot be added to a int64 in place"));
  EXPECT_THAT([&] { add_(ones({1}, kInt64), ones({1}, kInt64), 0.5); },
              throws("add_: 0.5 times a int64 cannot be added to a int64 in place"));
  EXPECT_THAT([&] { mul_(ones({1}, kInt64), 0.5); },
              throws("mul_: a int64 cannot be multiplied by 0.5 in place"));
  EXPECT_THAT([&] { fill_(expand(ones({1}), {3}), 2); },
              throws("fill_: the elements of an expanded tensor share memory, got shape [3] with "
                     "strides [0]"));
  x.set_requires_grad();
  EXPECT_THAT([&] { zero_(x); },
              throws("zero_: a tensor that requires grad cannot be changed in place while ops are "
                     "recorded; use a NoGradGuard"));
  EXPECT_THAT(
      [&] {
        add_(ones({2, 3}), x);
      },
      throws("add_: the source requires grad and would lose it; use a NoGradGuard or "
             "detach()"));
  EXPECT_THAT(
      [&] {
        copy_(ones({2, 3}), x);
      },
      throws("copy_: the source requires grad and would lose it; use a NoGradGuard or "
             "detach()"));
}

}  // namespace
}  // namespace chargrad::tests
