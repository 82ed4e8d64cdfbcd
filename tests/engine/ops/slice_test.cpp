#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "engine/ops.h"
#include "tests/engine/ops/op_testing.h"

namespace chargrad::tests {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

Tensor counted(const Shape& shape) {
  return reshape(arange(0, static_cast<double>(numel_of(shape)), 1, kFloat32), shape);
}

TEST(Slice, NarrowSliceSelect) {
  const Tensor x = counted({3, 4});
  EXPECT_THAT(values(narrow(x, 1, 1, 2)), ElementsAre(1, 2, 5, 6, 9, 10));
  EXPECT_THAT(values(narrow(x, 0, -1, 1)), ElementsAre(8, 9, 10, 11));
  EXPECT_EQ(narrow(x, 0, 3, 0).shape(), (Shape{0, 4}));
  EXPECT_THAT(values(slice(x, 0, 0, 3, 2)), ElementsAre(0, 1, 2, 3, 8, 9, 10, 11));
  EXPECT_THAT(values(slice(x, 1, -2, 99)), ElementsAre(2, 3, 6, 7, 10, 11));
  EXPECT_EQ(slice(x, 1, 3, 1).shape(), (Shape{3, 0}));
  EXPECT_THAT(values(slice(x, 1, 1, 4, std::numeric_limits<int64_t>::max())), ElementsAre(1, 5, 9));
  EXPECT_THAT(values(select(x, 0, 1)), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(values(select(x, -1, -1)), ElementsAre(3, 7, 11));
  EXPECT_EQ(select(select(x, 0, 2), 0, 1).shape(), Shape{});
}

TEST(Slice, GradientsAreZeroElsewhere) {
  const auto two = [](const Tensor& x) { return narrow(x, 0, 1, 2); };
  EXPECT_THAT(values(gradient(two, counted({4}), tensor({5, 6}))), ElementsAre(0, 5, 6, 0));
  const auto every_other = [](const Tensor& x) { return slice(x, 0, 0, 4, 2); };
  EXPECT_THAT(values(gradient(every_other, counted({4}), tensor({5, 6}))), ElementsAre(5, 0, 6, 0));
  const auto column = [](const Tensor& x) { return select(x, 1, 0); };
  EXPECT_THAT(values(gradient(column, counted({2, 2}), tensor({5, 6}))), ElementsAre(5, 0, 6, 0));
}

TEST(Slice, GradientsOfOverlappingPartsAndOfTheWholeAddUp) {
  const Tensor x = counted({2, 3}).set_requires_grad();
  const Tensor t = transpose(x, 0, 1) * 1.0;  // (3, 2)
  const Tensor strided = transpose(x, 0, 1);  // (3, 2)
  const Tensor y = sum(narrow(t, 0, 0, 2)) + sum(t) + sum(select(t, 1, 1)) * 10 +
                   sum(select(strided, 0, 2)) * 100 + sum(slice(strided, 0, 0, 3, 2)) * 1000;
  y.backward();
  EXPECT_THAT(values(x.grad()), ElementsAre(1002, 2, 1101, 1012, 12, 1111));
}

TEST(Split, SizesAndChunks) {
  const Tensor x = counted({7});
  const auto threes = split(x, 3);
  ASSERT_THAT(threes, SizeIs(3));
  EXPECT_THAT(values(threes[2]), ElementsAre(6));
  const auto listed = split(x, std::vector<int64_t>{0, 5, 2});
  ASSERT_THAT(listed, SizeIs(3));
  EXPECT_EQ(listed[0].numel(), 0);
  EXPECT_THAT(values(listed[2]), ElementsAre(5, 6));
  EXPECT_THAT(chunk(x, 4), SizeIs(4));
  EXPECT_THAT(values(chunk(x, 4)[3]), ElementsAre(6));
  EXPECT_THAT(chunk(x, 6), SizeIs(4));  // pieces of two
  EXPECT_THAT(chunk(x, std::numeric_limits<int64_t>::max()), SizeIs(7));
  EXPECT_EQ(chunk(counted({2, 6}), 3, -1)[1].shape(), (Shape{2, 2}));
  EXPECT_THAT(split(counted({0}), 3), SizeIs(1));
}

TEST(Split, ThePiecesShareOneGradient) {
  Tensor x = counted({6});
  x.set_requires_grad();
  const auto pieces = chunk(x, 3);
  sum(pieces[0] * pieces[2]).backward();
  EXPECT_THAT(values(x.grad()), ElementsAre(4, 5, 0, 0, 0, 1));
}

TEST(Cat, AlongEveryDimAndBack) {
  const Tensor a = tensor({{1, 2}}), b = tensor({{3, 4}, {5, 6}});
  EXPECT_THAT(values(cat({a, b})), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(values(cat({transpose(b, 0, 1), b}, -1)), ElementsAre(3, 5, 3, 4, 4, 6, 5, 6));
  EXPECT_EQ(cat({ones({0, 2}), b}).shape(), (Shape{2, 2}));
  EXPECT_EQ(cat({ones({1}), ones({1}, kInt64), ones({1}, kFloat64)}).dtype(), kFloat64);
  EXPECT_EQ(cat({ones({1}, kInt64), ones({2}, kInt64)}).dtype(), kInt64);

  Tensor u = tensor({1, 2}), v = tensor({3}, kFloat64);
  u.set_requires_grad();
  v.set_requires_grad();
  cat({u, v, u}).backward(tensor({1, 2, 3, 4, 5}, kFloat64));
  EXPECT_THAT(values(u.grad()), ElementsAre(5, 7));
  EXPECT_THAT(values(v.grad()), ElementsAre(3));
  EXPECT_EQ(u.grad().dtype(), kFloat32);
}

TEST(Stack, MakesANewDim) {
  const Tensor a = tensor({1, 2}), b = tensor({3, 4});
  EXPECT_THAT(values(stack({a, b})), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(values(stack({a, b}, -1)), ElementsAre(1, 3, 2, 4));
  EXPECT_EQ(stack({a, b, a}, 1).shape(), (Shape{2, 3}));
  EXPECT_EQ(stack({scalar(1), scalar(2)}).shape(), (Shape{2}));
}

TEST(Slice, Errors) {
  const Tensor x = counted({2, 3});
  EXPECT_THAT([&] { narrow(x, 1, 2, 2); },
              throws("narrow: start 2 and length 2 leave dim 1 of shape [2, 3]"));
  EXPECT_THAT([&] { narrow(x, 1, 0, -1); },
              throws("narrow: start 0 and length -1 leave dim 1 of shape [2, 3]"));
  EXPECT_THAT([&] { narrow(x, 1, 1, std::numeric_limits<int64_t>::max()); },
              throws("narrow: start 1 and length 9223372036854775807 leave dim 1 of shape [2, 3]"));
  EXPECT_THAT([&] { narrow(scalar(1), 0, 0, 1); },
              throws("narrow: a tensor of shape [] has no dim to take a part of"));
  EXPECT_THAT([&] { slice(x, 1, 0, 2, 0); }, throws("slice: step must be at least 1, got 0"));
  EXPECT_THAT([&] { slice(x, 2, 0, 2); }, throws("slice: dim 2 is out of range for shape [2, 3]"));
  EXPECT_THAT([&] { select(x, 1, 3); },
              throws("select: index 3 is out of range for dim 1 of shape [2, 3]"));
  EXPECT_THAT([&] { select(x, 1, -4); },
              throws("select: index -4 is out of range for dim 1 of shape [2, 3]"));
  EXPECT_THAT([&] { split(x, 0); }, throws("split: split_size must be positive, got 0"));
  EXPECT_THAT(
      [&] {
        split(x, std::vector<int64_t>{1, 2}, 0);
      },
      throws("split: sizes [1, 2] must add up to dim 0 of shape [2, 3]"));
  EXPECT_THAT(
      [&] {
        split(x, std::vector<int64_t>{3, -1}, 0);
      },
      throws("split: sizes must not be negative, got [3, -1]"));
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(
      [&] {
        split(x, std::vector<int64_t>{kMost, 3}, 0);
      },
      throws("split: too large sizes [9223372036854775807, 3]"));
  EXPECT_THAT([&] { chunk(x, 0); }, throws("chunk: the number of chunks must be positive, got 0"));
  EXPECT_THAT([&] { cat({}); }, throws("cat: at least one tensor is required"));
  EXPECT_THAT(
      [&] {
        cat({x, counted({2, 2})});
      },
      throws("cat: shapes must be equal outside dim 0, got [2, 3] and [2, 2]"));
  EXPECT_THAT(
      [&] {
        cat({x, counted({3})});
      },
      throws("cat: shapes must be equal outside dim 0, got [2, 3] and [3]"));
  EXPECT_THAT([&] { stack({}); }, throws("stack: at least one tensor is required"));
  EXPECT_THAT(
      [&] {
        stack({x, counted({3})});
      },
      throws("stack: shapes must be equal, got [2, 3] and [3]"));
  EXPECT_THAT([&] { stack({x}, 3); }, throws("stack: dim 3 is out of range for shape [2, 3]"));
}

}  // namespace
}  // namespace chargrad::tests
