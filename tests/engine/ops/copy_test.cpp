#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/ops.h"
#include "tests/engine/ops/op_testing.h"

namespace chargrad::tests {
namespace {

using testing::ElementsAre;

Tensor counted(const Shape& shape) {
  return reshape(arange(0, static_cast<double>(numel_of(shape)), 1, kFloat32), shape);
}

TEST(Copy, ContiguousKeepsWhatIsContiguous) {
  const Tensor x = counted({2, 3});
  EXPECT_EQ(contiguous(x).impl(), x.impl());
  const Tensor y = contiguous(transpose(x, 0, 1));
  EXPECT_TRUE(y.is_contiguous());
  EXPECT_NE(x.storage(), y.storage());
  EXPECT_THAT(values(y), ElementsAre(0, 3, 1, 4, 2, 5));
}

TEST(Copy, CloneIsACopyInTheGraph) {
  Tensor x = counted({2});
  x.set_requires_grad();
  const Tensor y = clone(x);
  EXPECT_NE(x.storage(), y.storage());
  EXPECT_EQ(y.grad_fn_name(), "clone");
  sum(y * y).backward();
  EXPECT_THAT(values(x.grad()), ElementsAre(0, 2));
}

TEST(Copy, ToConvertsBetweenAllDtypes) {
  const std::vector<DType> all = {kFloat32, kFloat64, kBFloat16, kInt64, kBool};
  for (const DType from : all) {
    for (const DType into : all) {
      const Tensor y = to(tensor({0, 1}, from), into);
      EXPECT_EQ(y.dtype(), into);
      EXPECT_THAT(values(y), ElementsAre(0, 1));
    }
    const Tensor x = ones({2}, from);
    EXPECT_EQ(to(x, from).impl(), x.impl());
  }
  EXPECT_THAT(values(to(tensor({-1.7, 2.9}), kInt64)), ElementsAre(-1, 2));
  EXPECT_THAT(values(to(tensor({-0.5, 0}), kBool)), ElementsAre(1, 0));
  EXPECT_EQ(to(scalar(1.00390625), kBFloat16).item(), 1);  // 1 + 2^-8 is a tie: to even
}

TEST(Copy, ToPassesTheGradientBackInItsDtype) {
  Tensor x = tensor({1, 2});
  x.set_requires_grad();
  sum(to(x, kFloat64) * tensor({3, 4}, kFloat64)).backward();
  EXPECT_EQ(x.grad().dtype(), kFloat32);
  EXPECT_THAT(values(x.grad()), ElementsAre(3, 4));
  EXPECT_FALSE(to(x, kInt64).requires_grad());
}

}  // namespace
}  // namespace chargrad::tests
