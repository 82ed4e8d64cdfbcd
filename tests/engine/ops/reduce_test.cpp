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

TEST(Amax, ValuesOfEveryDtype) {
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16, kInt64}) {
    const Tensor x = tensor({{1, 5, 3}, {4, 2, 4}}, dtype);
    EXPECT_THAT(values(amax(x, {1})), ElementsAre(5, 4));
    EXPECT_THAT(values(amin(x, {0})), ElementsAre(1, 2, 3));
    EXPECT_EQ(amax(x).item(), 5);
    EXPECT_EQ(amin(x, {-1, 0}, true).shape(), (Shape{1, 1}));
    EXPECT_EQ(amax(x).dtype(), dtype);
  }
  EXPECT_EQ(amax(tensor({0, 1}, kBool)).item(), 1);
  EXPECT_EQ(amax(tensor({0, 1}, kBool)).dtype(), kBool);
  EXPECT_TRUE(std::isnan(amax(tensor({1, kNaN, 2})).item()));
  EXPECT_EQ(amax(ones({0, 3}), {1}).shape(), (Shape{0}));
}

TEST(Amax, EqualExtremesShareTheGradient) {
  const Tensor x = tensor({{1, 4, 4}, {2, 2, 2}}, kFloat64);
  const auto largest = [](const Tensor& in) { return amax(in, {1}); };
  EXPECT_THAT(values(gradient(largest, x, tensor({1, 3}, kFloat64))),
              ElementsAre(0, 0.5, 0.5, 1, 1, 1));
  const auto smallest = [](const Tensor& in) { return amin(in, {1}, true); };
  EXPECT_THAT(values(gradient(smallest, x, unsqueeze(tensor({1, 3}, kFloat64), 1))),
              ElementsAre(1, 0, 0, 1, 1, 1));
}

TEST(MaxWithIndices, TheFirstOfEqualOnes) {
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16, kInt64}) {
    const Tensor x = tensor({{1, 5, 5}, {4, 2, 4}}, dtype);
    const auto [largest, where_largest] = max(x, 1);
    EXPECT_THAT(values(largest), ElementsAre(5, 4));
    EXPECT_THAT(values(where_largest), ElementsAre(1, 0));
    EXPECT_EQ(largest.dtype(), dtype);
    EXPECT_EQ(where_largest.dtype(), kInt64);
    const auto [smallest, where_smallest] = min(x, 0, true);
    EXPECT_THAT(values(smallest), ElementsAre(1, 2, 4));
    EXPECT_THAT(values(where_smallest), ElementsAre(0, 1, 1));
    EXPECT_EQ(smallest.shape(), (Shape{1, 3}));
  }
  EXPECT_EQ(max(tensor({0, 1}, kBool), 0).values.dtype(), kBool);
  EXPECT_EQ(max(tensor({3, kNaN, 5, kNaN}), 0).indices.item(), 1);
  EXPECT_EQ(max(scalar(7), 0).values.item(), 7);
  EXPECT_EQ(max(scalar(7), -1).indices.item(), 0);
}

TEST(MaxWithIndices, TheGradientGoesToTheChosenOne) {
  const Tensor x = tensor({{1, 5, 5}, {4, 2, 4}});
  const auto largest = [](const Tensor& in) { return max(in, 1).values; };
  EXPECT_THAT(values(gradient(largest, x, tensor({2, 3}))), ElementsAre(0, 2, 0, 3, 0, 0));
  const auto smallest = [](const Tensor& in) { return min(in, 0, true).values; };
  EXPECT_THAT(values(gradient(smallest, x, tensor({{2, 3, 4}}))), ElementsAre(2, 0, 0, 0, 3, 4));
}

TEST(Argmax, FlattenedAndAlongADim) {
  const Tensor x = tensor({{1, 5, 3}, {4, 2, 9}});
  EXPECT_EQ(argmax(x).item(), 5);
  EXPECT_EQ(argmax(x).shape(), Shape{});
  EXPECT_THAT(values(argmax(x, 1)), ElementsAre(1, 2));
  EXPECT_THAT(values(argmax(transpose(x, 0, 1), 0)), ElementsAre(1, 2));
  EXPECT_EQ(argmax(x, 0, true).shape(), (Shape{1, 3}));
  EXPECT_EQ(argmax(transpose(x, 0, 1)).item(), 5);  // in the order of the view
  Tensor leaf = x.detach();
  leaf.set_requires_grad();
  EXPECT_FALSE(argmax(leaf).requires_grad());
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
  EXPECT_THAT(
      [&] {
        amax(ones({2, 0}), {1});
      },
      throws("amax: no element to choose from along dims [1] of shape [2, 0]"));
  EXPECT_THAT([&] { amin(ones({0})); },
              throws("amin: no element to choose from along dims [0] of shape [0]"));
  EXPECT_THAT(
      [&] {
        max(ones({2, 0}), 1);
      },
      throws("max: no element to choose from along dim 1 of shape [2, 0]"));
  EXPECT_THAT([&] { min(x, 5); }, throws("min: dim 5 is out of range for shape [2, 3]"));
  EXPECT_THAT([&] { argmax(ones({0})); },
              throws("argmax: no element to choose from along dim 0 of shape [0]"));
}

}  // namespace
}  // namespace chargrad::tests
