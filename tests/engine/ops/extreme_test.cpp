#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/ops.h"
#include "tests/engine/ops/op_testing.h"

namespace chargrad::tests {
namespace {

using testing::ElementsAre;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

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

TEST(Extreme, Errors) {
  EXPECT_THAT(
      [&] {
        amax(ones({2, 0}), {1});
      },
      throws("amax: no element to choose from along dims [1] of shape [2, 0]"));
  EXPECT_THAT(
      [&] {
        max(ones({2, 0}), 1);
      },
      throws("max: no element to choose from along dim 1 of shape [2, 0]"));
  EXPECT_THAT([&] { amin(ones({0})); },
              throws("amin: no element to choose from along dims [0] of shape [0]"));
  EXPECT_THAT([&] { min(ones({2, 3}), 5); }, throws("min: dim 5 is out of range for shape [2, 3]"));
  EXPECT_THAT([&] { argmax(ones({0})); },
              throws("argmax: no element to choose from along dim 0 of shape [0]"));
}

}  // namespace
}  // namespace chargrad::tests
