#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/ops.h"
#include "tests/engine/ops/op_testing.h"

namespace chargrad::tests {
namespace {

using testing::ElementsAre;

TEST(Triangle, OfMatricesAndBatches) {
  const Tensor x = ones({2, 3});
  EXPECT_THAT(values(tril(x)), ElementsAre(1, 0, 0, 1, 1, 0));
  EXPECT_THAT(values(triu(x)), ElementsAre(1, 1, 1, 0, 1, 1));
  EXPECT_THAT(values(tril(x, -1)), ElementsAre(0, 0, 0, 1, 0, 0));
  EXPECT_THAT(values(triu(x, 1)), ElementsAre(0, 1, 1, 0, 0, 1));
  EXPECT_THAT(values(tril(x, 9)), ElementsAre(1, 1, 1, 1, 1, 1));
  EXPECT_EQ(tril(ones({4, 2, 3}, kBool)).dtype(), kBool);
  EXPECT_EQ(sum(tril(ones({4, 2, 3}))).item(), 12);
  EXPECT_EQ(triu(ones({2, 0})).shape(), (Shape{2, 0}));
  const auto f = [](const Tensor& in) { return tril(in); };
  EXPECT_THAT(values(gradient(f, x, tensor({{1, 2, 3}, {4, 5, 6}}))),
              ElementsAre(1, 0, 0, 4, 5, 0));
}

TEST(Triangle, Errors) {
  EXPECT_THAT([&] { tril(ones({3})); },
              throws("tril: at least two dims are required, got shape [3]"));
  EXPECT_THAT([&] { triu(scalar(1)); },
              throws("triu: at least two dims are required, got shape []"));
}

}  // namespace
}  // namespace chargrad::tests
