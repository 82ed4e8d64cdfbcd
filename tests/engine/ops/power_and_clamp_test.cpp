#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "engine/ops.h"
#include "tests/engine/ops/op_testing.h"

namespace chargrad::tests {
namespace {

using testing::Each;
using testing::ElementsAre;

TEST(Pow, OfEveryDtype) {
  EXPECT_THAT(values(pow(tensor({2, -3}, kInt64), 3)), ElementsAre(8, -27));
  EXPECT_EQ(pow(tensor({2}, kInt64), 3).dtype(), kInt64);
  EXPECT_EQ(pow(tensor({4}, kInt64), 0.5).dtype(), kFloat32);
  EXPECT_EQ(pow(tensor({4}, kInt64), -1).item(), 0.25);
  EXPECT_EQ(pow(tensor({1}, kBool), 2).dtype(), kInt64);
  EXPECT_EQ(pow(tensor({3}, kBFloat16), 2).dtype(), kBFloat16);
  EXPECT_THAT(values(pow(tensor({0, 5}), 0)), ElementsAre(1, 1));
  const auto zeroth = [](const Tensor& x) { return pow(x, 0); };
  EXPECT_THAT(values(gradient(zeroth, tensor({0, 5}), tensor({1, 1}))), ElementsAre(0, 0));
}

TEST(Clamp, PassesTheGradientAtItsBounds) {
  const Tensor x = tensor({-2, -1, 0, 1, 2});
  const auto both = [](const Tensor& in) { return clamp(in, -1, 1); };
  EXPECT_THAT(values(both(x)), ElementsAre(-1, -1, 0, 1, 1));
  EXPECT_THAT(values(gradient(both, x, ones({5}))), ElementsAre(0, 1, 1, 1, 0));
  EXPECT_THAT(values(clamp(x, {}, 0.5)), ElementsAre(-2, -1, 0, 0.5, 0.5));
  EXPECT_THAT(values(clamp(x, 0.5, {})), ElementsAre(0.5, 0.5, 0.5, 1, 2));
  EXPECT_THAT(values(clamp(x, 1, -1)), Each(-1));
  EXPECT_EQ(clamp(tensor({7}, kInt64), 0, 5).dtype(), kInt64);
  EXPECT_EQ(clamp(tensor({7}, kInt64), {}, 5).item(), 5);
  EXPECT_EQ(clamp(tensor({7}, kInt64), 0, 5.5).item(), 5.5);
  EXPECT_EQ(clamp(tensor({7}, kBFloat16), 0, 5.5).dtype(), kBFloat16);
}

TEST(Clamp, Errors) {
  const Tensor a = ones({2});
  EXPECT_THAT([&] { clamp(a, {}, {}); }, throws("clamp: at least one bound is required"));
  EXPECT_THAT([&] { clamp(a, std::numeric_limits<double>::quiet_NaN(), 1); },
              throws("clamp: a bound is not a number"));
}

}  // namespace
}  // namespace chargrad::tests
