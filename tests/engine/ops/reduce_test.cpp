#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/ops.h"
#include "tests/engine/ops/op_testing.h"

namespace chargrad::tests {
namespace {

using testing::Each;
using testing::ElementsAre;

Tensor counted(const Shape& shape, DType dtype = kFloat32) {
  return reshape(arange(0, static_cast<double>(numel_of(shape)), 1, dtype), shape);
}

TEST(Sum, ValuesAndShapes) {
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16, kInt64}) {
    const Tensor x = counted({2, 3, 4}, dtype);
    EXPECT_EQ(sum(x).item(), 276);
    EXPECT_EQ(sum(x).shape(), Shape{});
    EXPECT_EQ(sum(x).dtype(), dtype);
    EXPECT_EQ(sum(x, {}, true).shape(), (Shape{1, 1, 1}));
    EXPECT_THAT(values(sum(x, {0, 2})), ElementsAre(60, 92, 124));
    EXPECT_THAT(values(sum(x, {-1})), ElementsAre(6, 22, 38, 54, 70, 86));
    EXPECT_EQ(sum(x, {-1}, true).shape(), (Shape{2, 3, 1}));
    EXPECT_EQ(sum(x, {1}).shape(), (Shape{2, 4}));
    EXPECT_THAT(values(sum(transpose(x, 0, 2), {0, 1})), ElementsAre(66, 210));
  }
  EXPECT_EQ(sum(tensor({1, 0, 1}, kBool)).dtype(), kInt64);
  EXPECT_EQ(sum(tensor({1, 0, 1}, kBool)).item(), 2);
  EXPECT_EQ(sum(scalar(3), {0}).item(), 3);
  EXPECT_EQ(sum(scalar(3), {-1}, true).shape(), Shape{});
}

TEST(Sum, OfNothingIsZero) {
  EXPECT_EQ(sum(ones({0})).item(), 0);
  EXPECT_THAT(values(sum(ones({2, 0}), {1})), ElementsAre(0, 0));
  EXPECT_EQ(sum(ones({2, 0}), {0}).shape(), (Shape{0}));
}

TEST(Sum, Gradients) {
  const auto outer = [](const Tensor& x) { return sum(x, {0, 2}); };
  EXPECT_THAT(values(gradient(outer, counted({2, 3, 4}), ones({3}))), Each(1));
  const auto last = [](const Tensor& x) { return sum(x, {-1}); };
  EXPECT_THAT(values(gradient(last, counted({2, 3}), tensor({5, 7}))),
              ElementsAre(5, 5, 5, 7, 7, 7));
}

TEST(Mean, ValuesAndGradient) {
  EXPECT_EQ(mean(tensor({1, 2, 6})).item(), 3);
  EXPECT_THAT(values(mean(counted({2, 3}), {0})), ElementsAre(1.5, 2.5, 3.5));
  EXPECT_EQ(mean(tensor({1, 2}, kBFloat16)).dtype(), kBFloat16);
  const auto first = [](const Tensor& x) { return mean(x, {0}); };
  EXPECT_THAT(values(gradient(first, tensor({1, 2, 3}, kFloat64), scalar(1, kFloat64))),
              near({1.0 / 3, 1.0 / 3, 1.0 / 3}, 1e-16));
  EXPECT_TRUE(std::isnan(mean(ones({0})).item()));
}

// 1, 2, 4 have mean 7/3 and squared distances 42/9.
TEST(Var, ValuesAndGradient) {
  const Tensor x = tensor({1, 2, 4}, kFloat64);
  EXPECT_NEAR(var(x).item(), 7.0 / 3, 1e-15);
  EXPECT_NEAR(var(x, {0}, 0).item(), 14.0 / 9, 1e-15);
  EXPECT_EQ(var(x, {0}, 1, true).shape(), (Shape{1}));
  EXPECT_TRUE(std::isnan(var(ones({1})).item()));  // 0 / 0
  const auto unbiased = [](const Tensor& in) { return var(in); };
  EXPECT_THAT(values(gradient(unbiased, x, scalar(3, kFloat64))), near({-4, -1, 5}, 1e-14));
  const auto rows = [](const Tensor& in) { return var(in, {1}, 0); };
  EXPECT_THAT(values(gradient(rows, tensor({{1, 3}, {2, 2}}, kFloat64), tensor({1, 1}, kFloat64))),
              near({-1, 1, 0, 0}, 1e-15));
}

// Numbers far from zero: the naive sum of squares would lose every digit in float32.
TEST(Var, FarFromZero) {
  EXPECT_EQ(var(tensor({1e6, 1e6 + 1, 1e6 + 2})).item(), 1);
}

TEST(Reduce, Errors) {
  const Tensor x = ones({2, 3});
  EXPECT_THAT([&] { sum(x, {2}); }, throws("sum: dim 2 is out of range for shape [2, 3]"));
  EXPECT_THAT(
      [&] {
        sum(x, {0, -2});
      },
      throws("sum: a dim appears twice in [0, -2] for shape [2, 3]"));
  EXPECT_THAT([&] { mean(ones({2}, kInt64)); }, throws("mean: input must be floating, got int64"));
  EXPECT_THAT([&] { var(ones({2}, kBool)); }, throws("var: input must be floating, got bool"));
  EXPECT_THAT([&] { var(x, {-3}); }, throws("var: dim -3 is out of range for shape [2, 3]"));
}

}  // namespace
}  // namespace chargrad::tests
