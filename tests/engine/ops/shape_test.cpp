#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/ops.h"
#include "tests/engine/ops/op_testing.h"

namespace chargrad::tests {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

Tensor counted(const Shape& shape) {
  return reshape(arange(0, static_cast<double>(numel_of(shape)), 1, kFloat32), shape);
}

bool shares_memory(const Tensor& a, const Tensor& b) {
  return a.storage() == b.storage();
}

TEST(View, IsTheSameMemory) {
  const Tensor x = counted({2, 6});
  const Tensor y = view(x, {3, -1});
  EXPECT_EQ(y.shape(), (Shape{3, 4}));
  EXPECT_TRUE(shares_memory(x, y));
  EXPECT_EQ(y.item({2, 1}), 9);
}

// Wherever view accepts a shape, it shows the elements in their order; where it does not, reshape
// copies and shows the same.
TEST(View, AgreesWithACopyOnStridedTensors) {
  const Tensor whole = counted({4, 6, 1, 4});
  const std::vector<Tensor> sources = {
      whole,
      transpose(whole, 0, 1),
      transpose(whole, 1, 3),
      permute(whole, {3, 2, 0, 1}),
      slice(whole, 0, 0, 4, 2),
      slice(whole, 3, 0, 4, 2),
      narrow(whole, 1, 2, 2),
      expand(narrow(whole, 1, 0, 1), {4, 3, 1, 4}),
      expand(narrow(whole, 0, 1, 1), {2, 6, 1, 4}),
      narrow(whole, 1, 0, 0),
  };
  int views = 0, copies = 0;
  for (const Tensor& x : sources) {
    const std::vector<double> elements = values(contiguous(x));
    const int64_t n = x.numel();
    std::vector<Shape> shapes = {{n}, {1, n, 1}, x.shape(), {x.size(0), n / x.size(0)}};
    for (const int64_t d : {2, 3, 4, 6, 8, 12}) {
      if (n % d == 0) {
        shapes.push_back({d, n / d});
        shapes.push_back({n / d, 1, d});
      }
    }
    for (const Shape& shape : shapes) {
      const Tensor y = reshape(x, shape);
      EXPECT_EQ(y.shape(), shape);
      EXPECT_THAT(values(y), ElementsAreArray(elements));
      if (shares_memory(x, y)) {
        ++views;
        EXPECT_THAT(values(view(x, shape)), ElementsAreArray(elements));
      } else {
        ++copies;
        EXPECT_THROW(view(x, shape), std::invalid_argument);
      }
    }
  }
  EXPECT_GT(views, 40);
  EXPECT_GT(copies, 20);
}

TEST(View, MergesOnlyDimsThatLieTogether) {
  const Tensor x = counted({2, 3, 4});
  EXPECT_TRUE(shares_memory(reshape(transpose(x, 0, 1), {3, 2, 2, 2}), x));
  EXPECT_FALSE(shares_memory(reshape(transpose(x, 0, 1), {6, 4}), x));
  EXPECT_TRUE(shares_memory(reshape(transpose(x, 0, 2), {4, 3, 2}), x));
}

TEST(View, InPlaceChangesAreSeenByBoth) {
  const Tensor x = zeros({2, 3});
  fill_(select(transpose(view(x, {3, 2}), 0, 1), 0, 1), 5);
  EXPECT_THAT(values(x), ElementsAre(0, 5, 0, 5, 0, 5));
}

TEST(Shape, TransposeAndPermute) {
  const Tensor x = counted({2, 3});
  EXPECT_THAT(values(transpose(x, 0, 1)), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_EQ(transpose(counted({2, 3, 4}), 0, -1).shape(), (Shape{4, 3, 2}));
  EXPECT_EQ(permute(counted({2, 3, 4}), {-1, 0, 1}).shape(), (Shape{4, 2, 3}));
  EXPECT_EQ(permute(counted({2, 3, 4}), {2, 0, 1}).item({3, 1, 2}), 23);
  EXPECT_EQ(transpose(scalar(3), 0, -1).item(), 3);
  EXPECT_EQ(permute(scalar(3), {}).item(), 3);
}

TEST(Shape, SqueezeAndUnsqueeze) {
  const Tensor x = counted({1, 3, 1});
  EXPECT_EQ(squeeze(x).shape(), (Shape{3}));
  EXPECT_EQ(squeeze(x, 0).shape(), (Shape{3, 1}));
  EXPECT_EQ(squeeze(x, 1).shape(), (Shape{1, 3, 1}));
  EXPECT_EQ(unsqueeze(x, -1).shape(), (Shape{1, 3, 1, 1}));
  EXPECT_EQ(unsqueeze(scalar(1), 0).shape(), (Shape{1}));
  EXPECT_EQ(unsqueeze(counted({2, 3}), 1).shape(), (Shape{2, 1, 3}));
  EXPECT_TRUE(unsqueeze(counted({2, 3}), 1).is_contiguous());
}

TEST(Shape, Expand) {
  const Tensor x = unsqueeze(tensor({1, 2}), 1);
  const Tensor y = expand(x, {2, -1, 3});
  EXPECT_EQ(y.shape(), (Shape{2, 2, 3}));
  EXPECT_TRUE(shares_memory(x, y));
  EXPECT_THAT(values(y), ElementsAre(1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2));
  EXPECT_EQ(expand(tensor({1}), {0}).numel(), 0);
  const auto f = [](const Tensor& in) { return expand(in, {2, 2, 3}); };
  EXPECT_THAT(values(gradient(f, x, counted({2, 2, 3}))),
              ElementsAre(0 + 1 + 2 + 6 + 7 + 8, 48 - 6));
}

TEST(Shape, Flatten) {
  const Tensor x = counted({2, 3, 4});
  EXPECT_EQ(flatten(x).shape(), (Shape{24}));
  EXPECT_EQ(flatten(x, 1).shape(), (Shape{2, 12}));
  EXPECT_EQ(flatten(x, 0, 1).shape(), (Shape{6, 4}));
  EXPECT_EQ(flatten(x, -1).shape(), (Shape{2, 3, 4}));
  EXPECT_EQ(flatten(scalar(1)).shape(), (Shape{1}));
  EXPECT_THAT(values(flatten(transpose(counted({2, 2}), 0, 1))), ElementsAre(0, 2, 1, 3));
}

TEST(Shape, GradientsOfViewsAddUp) {
  Tensor x = counted({2, 3});
  x.set_requires_grad();
  sum(transpose(x, 0, 1) * reshape(x, {3, 2})).backward();
  // Position (i, j) of the transpose is x[j, i], of the reshape x.flat[2 i + j].
  EXPECT_THAT(values(x.grad()), ElementsAre(0 + 0, 3 + 2, 1 + 4, 4 + 1, 2 + 3, 5 + 5));
}

TEST(Shape, Errors) {
  const Tensor x = counted({2, 3});
  EXPECT_THAT([&] { view(transpose(x, 0, 1), {6}); },
              throws("view: shape [3, 2] with strides [1, 3] cannot be seen as [6] without a copy; "
                     "use reshape"));
  EXPECT_THAT(
      [&] {
        view(x, {4, 2});
      },
      throws("view: the number of elements must stay the same, got shape [2, 3] as [4, 2]"));
  EXPECT_THAT(
      [&] {
        reshape(x, {4, -1});
      },
      throws("reshape: the number of elements must stay the same, got shape [2, 3] as "
             "[4, -1]"));
  EXPECT_THAT(
      [&] {
        reshape(x, {-1, -1});
      },
      throws("reshape: at most one size may be -1 and none below, got [-1, -1]"));
  EXPECT_THAT(
      [&] {
        reshape(x, {-2, 3});
      },
      throws("reshape: at most one size may be -1 and none below, got [-2, 3]"));
  EXPECT_THAT(
      [&] {
        reshape(x, {int64_t{1} << 40, int64_t{1} << 40});
      },
      throws("reshape: too many elements in shape [1099511627776, 1099511627776]"));
  EXPECT_THAT([&] { transpose(x, 0, 2); },
              throws("transpose: dim 2 is out of range for shape [2, 3]"));
  EXPECT_THAT([&] { permute(x, {0}); },
              throws("permute: every dim must be named once, got [0] for shape [2, 3]"));
  EXPECT_THAT(
      [&] {
        permute(x, {1, -1});
      },
      throws("permute: every dim must be named once, got [1, -1] for shape [2, 3]"));
  EXPECT_THAT([&] { squeeze(x, 2); }, throws("squeeze: dim 2 is out of range for shape [2, 3]"));
  EXPECT_THAT([&] { unsqueeze(x, 3); },
              throws("unsqueeze: dim 3 is out of range for shape [2, 3]"));
  EXPECT_THAT([&] { expand(x, {3}); }, throws("expand: shape [2, 3] has more dims than [3]"));
  EXPECT_THAT(
      [&] {
        expand(x, {4, 3});
      },
      throws("expand: shape [2, 3] cannot be expanded to [4, 3]"));
  EXPECT_THAT(
      [&] {
        expand(x, {-1, 2, 3});
      },
      throws("expand: shape [2, 3] cannot be expanded to [-1, 2, 3]"));
  EXPECT_THAT([&] { flatten(x, 1, 0); },
              throws("flatten: start 1 must not come after end 0 in shape [2, 3]"));
  EXPECT_THAT([&] { flatten(x, 2); }, throws("flatten: dim 2 is out of range for shape [2, 3]"));
}

}  // namespace
}  // namespace chargrad::tests
