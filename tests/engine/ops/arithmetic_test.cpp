#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/ops.h"
#include "tests/engine/ops/op_testing.h"

namespace chargrad::tests {
namespace {

using testing::Each;
using testing::ElementsAre;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Tensor leaf(Tensor x) {
  return x.set_requires_grad();
}

TEST(Arithmetic, ValuesOfEveryDtype) {
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16, kInt64}) {
    const Tensor a = tensor({6, -3, 0}, dtype), b = tensor({2, 4, 1}, dtype);
    EXPECT_THAT(values(a + b), ElementsAre(8, 1, 1));
    EXPECT_THAT(values(a - b), ElementsAre(4, -7, -1));
    EXPECT_THAT(values(a * b), ElementsAre(12, -12, 0));
    EXPECT_THAT(values(a / b), ElementsAre(3, -0.75, 0));
    EXPECT_THAT(values(-a), ElementsAre(-6, 3, 0));
    EXPECT_THAT(values(abs(a)), ElementsAre(6, 3, 0));
    EXPECT_THAT(values(maximum(a, b)), ElementsAre(6, 4, 1));
    EXPECT_THAT(values(minimum(a, b)), ElementsAre(2, -3, 0));
    EXPECT_EQ((a + b).dtype(), dtype);
    EXPECT_EQ((a / b).dtype(), dtype == kInt64 ? kFloat32 : dtype);
  }
}

TEST(Arithmetic, BoolsAddAsOrAndMultiplyAsAnd) {
  const Tensor a = tensor({1, 1, 0, 0}, kBool), b = tensor({1, 0, 1, 0}, kBool);
  EXPECT_THAT(values(a + b), ElementsAre(1, 1, 1, 0));
  EXPECT_THAT(values(a * b), ElementsAre(1, 0, 0, 0));
  EXPECT_THAT(values(maximum(a, b)), ElementsAre(1, 1, 1, 0));
  EXPECT_EQ((a + b).dtype(), kBool);
}

TEST(Arithmetic, ATensorWithoutDimsPromotesToAHigherKindOnly) {
  const Tensor floats = ones({2}), integers = ones({2}, kInt64), flags = ones({2}, kBool);
  EXPECT_EQ((floats + ones({2}, kFloat64)).dtype(), kFloat64);
  EXPECT_EQ((floats + scalar(1, kFloat64)).dtype(), kFloat32);
  EXPECT_EQ((scalar(1, kFloat64) + floats).dtype(), kFloat32);
  EXPECT_EQ((integers + scalar(1, kFloat64)).dtype(), kFloat64);
  EXPECT_EQ((flags + scalar(1, kInt64)).dtype(), kInt64);
  EXPECT_EQ((integers + scalar(1, kBool)).dtype(), kInt64);
  EXPECT_EQ((scalar(1) + scalar(1, kFloat64)).dtype(), kFloat64);
  EXPECT_EQ((ones({2}, kBFloat16) + integers).dtype(), kBFloat16);
  EXPECT_EQ((ones({2}, kBFloat16) + floats).dtype(), kFloat32);
}

TEST(Arithmetic, NumbersKeepAFloatingDtype) {
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16}) {
    const Tensor x = tensor({1, 2}, dtype);
    EXPECT_EQ((x * 0.5).dtype(), dtype);
    EXPECT_THAT(values(x + 0.5), ElementsAre(1.5, 2.5));
    EXPECT_THAT(values(x - 0.5), ElementsAre(0.5, 1.5));
    EXPECT_THAT(values(2.0 - x), ElementsAre(1, 0));
    EXPECT_THAT(values(x * 3), ElementsAre(3, 6));
    EXPECT_THAT(values(x / 4), ElementsAre(0.25, 0.5));
  }
  const Tensor count = tensor({3}, kInt64) * 0.5;
  EXPECT_EQ(count.dtype(), kFloat32);
  EXPECT_EQ(count.item(), 1.5);
}

// 1 - mask; and a gradient, which only b has: db = -dy.
TEST(Arithmetic, ANumberMinusATensor) {
  const Tensor inverse = 1 - tensor({1, 0}, kBool);
  EXPECT_EQ(inverse.dtype(), kFloat32);
  EXPECT_THAT(values(inverse), ElementsAre(0, 1));
  EXPECT_THAT(values(5 - tensor({7, 2}, kInt64)), ElementsAre(-2, 3));
  const auto f = [](const Tensor& x) { return 5 - x; };
  EXPECT_THAT(values(gradient(f, tensor({1, 2}), tensor({1, 10}))), ElementsAre(-1, -10));
}

TEST(Arithmetic, NanAndInfinity) {
  const Tensor x = tensor({kNaN, 1, 0}), y = tensor({1, kNaN, 0});
  EXPECT_TRUE(std::isnan(maximum(x, y).item({0})));
  EXPECT_TRUE(std::isnan(maximum(x, y).item({1})));
  EXPECT_TRUE(std::isnan(minimum(x, y).item({1})));
  EXPECT_TRUE(std::isnan((y / x).item({2})));
  EXPECT_EQ((tensor({1.0}) / tensor({0.0})).item(), std::numeric_limits<double>::infinity());
}

TEST(Arithmetic, EmptyAndBroadcastEmpty) {
  EXPECT_EQ((ones({0, 3}) + ones({3})).shape(), (Shape{0, 3}));
  EXPECT_EQ((ones({0}) * ones({1})).shape(), (Shape{0}));
  Tensor x = leaf(ones({1, 3}));
  (x * ones({0, 3})).backward(ones({0, 3}));
  EXPECT_THAT(values(x.grad()), ElementsAre(0, 0, 0));
}

// a = 1; b = a + a; c = b + b: a's gradient is 4, b's 2.
TEST(Arithmetic, ATensorUsedTwice) {
  Tensor a = leaf(scalar(1));
  const Tensor b = a + a;
  b.retain_grad();
  (b + b).backward();
  EXPECT_EQ(a.grad().item(), 4);
  EXPECT_EQ(b.grad().item(), 2);
}

// f = x t + (x x) a + x t with t = x a is 3 a x^2: at x = 1, a = 1 the gradients are 6 and 3.
TEST(Arithmetic, ATensorOnSeveralPaths) {
  Tensor x = leaf(scalar(1)), a = leaf(scalar(1));
  const Tensor t = x * a;
  (x * t + (x * x) * a + x * t).backward();
  EXPECT_EQ(x.grad().item(), 6);
  EXPECT_EQ(a.grad().item(), 3);
}

TEST(Arithmetic, GradientOfAnOuterProduct) {
  Tensor a = leaf(reshape(tensor({1, 2, 3, 4}), {4, 1}));
  Tensor b = leaf(tensor({{1, 2, 3, 4}}));
  sum(a * b).backward();
  EXPECT_EQ(a.grad().shape(), (Shape{4, 1}));
  EXPECT_EQ(b.grad().shape(), (Shape{1, 4}));
  EXPECT_THAT(values(a.grad()), Each(10));
  EXPECT_THAT(values(b.grad()), Each(10));
}

TEST(Arithmetic, GradientOfAnElementThatBroadcasts) {
  Tensor s = leaf(tensor({2})), m = leaf(ones({5, 4}));
  sum(s * m).backward();
  EXPECT_EQ(s.grad().shape(), (Shape{1}));
  EXPECT_THAT(values(s.grad()), ElementsAre(20));
  EXPECT_THAT(values(m.grad()), Each(2));
}

TEST(Arithmetic, GradientsComeBackInTheInputsDtype) {
  Tensor a = leaf(tensor({3}, kFloat32)), b = leaf(tensor({5}, kFloat64));
  Tensor c = leaf(tensor({2}, kBFloat16));
  sum(a * b * c).backward();
  EXPECT_EQ(a.grad().dtype(), kFloat32);
  EXPECT_EQ(b.grad().dtype(), kFloat64);
  EXPECT_EQ(c.grad().dtype(), kBFloat16);
  EXPECT_EQ(a.grad().item(), 10);
  EXPECT_EQ(b.grad().item(), 6);
  EXPECT_EQ(c.grad().item(), 15);
}

// The residual stream of mixed precision: float32 with a bfloat16 branch. Nothing but the branch's
// gradient is rounded; 1/3 has no short form in either dtype.
TEST(Arithmetic, BFloat16BesideFloat32IsWidened) {
  const Tensor x = tensor({1.0 / 3, 1.0 / 3}), branch = tensor({1.0 / 3, -1}, kBFloat16);
  const Tensor wide = branch.to(kFloat32), dy = tensor({1.0 / 3, 2});
  for (const bool branch_first : {false, true}) {
    Tensor a = leaf(x.clone()), b = leaf(branch.clone());
    const Tensor y = branch_first ? b + a : a + b;
    EXPECT_EQ(y.dtype(), kFloat32);
    EXPECT_EQ(values(y), values(x + wide));
    y.backward(dy);
    EXPECT_EQ(values(a.grad()), values(dy));
    EXPECT_EQ(b.grad().dtype(), kBFloat16);
    EXPECT_EQ(values(b.grad()), values(dy.to(kBFloat16)));
  }
  EXPECT_EQ(values(x - branch), values(x - wide));
  EXPECT_EQ(values(branch * x), values(wide * x));
  EXPECT_EQ((branch * scalar(1.0 / 3)).dtype(), kBFloat16);
}

TEST(Arithmetic, ATieOfMaximumSharesTheGradient) {
  Tensor a = leaf(tensor({1, 2, 3})), b = leaf(tensor({2}));
  maximum(a, b).backward(tensor({1, 10, 100}));
  EXPECT_THAT(values(a.grad()), ElementsAre(0, 5, 100));
  EXPECT_THAT(values(b.grad()), ElementsAre(6));
  a.set_grad({});
  b.set_grad({});
  minimum(a, b).backward(tensor({1, 10, 100}));
  EXPECT_THAT(values(a.grad()), ElementsAre(1, 5, 0));
  EXPECT_THAT(values(b.grad()), ElementsAre(105));
}

TEST(Arithmetic, AbsHasNoGradientAtZero) {
  EXPECT_THAT(values(gradient(abs, tensor({-2, 0, 2}), tensor({1, 1, 1}))), ElementsAre(-1, 0, 1));
}

TEST(Arithmetic, Errors) {
  const Tensor a = ones({2, 3}), b = ones({2, 4}), flag = ones({1}, kBool);
  EXPECT_THAT([&] { add(a, b); }, throws("add: sizes must be equal or 1 to broadcast, got shapes "
                                         "[2, 3] and [2, 4]"));
  EXPECT_THAT([&] { div(a, b); }, throws("div: sizes must be equal or 1 to broadcast, got shapes "
                                         "[2, 3] and [2, 4]"));
  EXPECT_THAT([&] { maximum(b, a); }, throws("maximum: sizes must be equal or 1 to broadcast, got "
                                             "shapes [2, 4] and [2, 3]"));
  EXPECT_THAT([&] { sub(flag, flag); }, throws("sub: two bool tensors cannot be subtracted"));
  EXPECT_THAT([&] { neg(flag); }, throws("neg: a bool tensor has no negative"));
  EXPECT_THAT([&] { abs(flag); }, throws("abs: a bool tensor has no absolute value"));
}

}  // namespace
}  // namespace chargrad::tests
