// Handles, views, element access.
#include "engine/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/ops.h"
#include "tests/error_text.h"

namespace chargrad {
namespace {

using testing::ElementsAre;

TEST(Tensor, HandleSharesData) {
  const Tensor a = zeros({2});
  const Tensor b = a;  // NOLINT(performance-unnecessary-copy-initialization): what is tested
  fill_(b, 3);
  EXPECT_THAT(a.to_vector<float>(), ElementsAre(3, 3));
  EXPECT_EQ(a.version(), 1u);
}

TEST(Tensor, ShapeQueries) {
  const Tensor x = zeros({2, 3, 4});
  EXPECT_EQ(x.size(-1), 4);
  EXPECT_EQ(x.stride(0), 12);
  EXPECT_EQ(x.dim(), 3);
  EXPECT_EQ(x.numel(), 24);
  EXPECT_TRUE(x.is_contiguous());
  EXPECT_FALSE(x.transpose(0, 2).is_contiguous());
  EXPECT_TRUE(zeros({1, 3}).transpose(0, 1).is_contiguous());  // dims of size 1 do not matter
  EXPECT_EQ(error_text<std::invalid_argument>([&] { x.size(3); }),
            "size: dim 3 is out of range for shape [2, 3, 4]");
  EXPECT_EQ(error_text<std::invalid_argument>([&] { x.stride(-4); }),
            "stride: dim -4 is out of range for shape [2, 3, 4]");
}

TEST(Tensor, ItemChecksNumberAndIndex) {
  const Tensor x = tensor({{1, 2}, {3, 4}});
  EXPECT_EQ(x.item({1, -2}), 3);
  EXPECT_EQ(x.transpose(0, 1).item({0, 1}), 3);
  EXPECT_EQ(error_text<std::invalid_argument>([&] { x.item(); }),
            "item: one element is required, got shape [2, 2]");
  EXPECT_EQ(error_text<std::invalid_argument>([&] {
              x.item({2, 0});
            }),
            "item: index [2, 0] is out of range for shape [2, 2]");
  EXPECT_EQ(error_text<std::invalid_argument>([&] { x.item({0}); }),
            "item: the index [0] must have one number per dim of shape [2, 2]");
}

TEST(Tensor, ItemOfATypeIsExact) {
  const Tensor x = from_vector<int64_t>({9007199254740993}, {1});  // 2^53 + 1: no double
  EXPECT_EQ(x.item<int64_t>(), 9007199254740993);
  EXPECT_EQ(x.item(), 9007199254740992.0);
  EXPECT_EQ(scalar(-2.5).item<float>(), -2.5f);
  EXPECT_EQ(scalar(-2.5).item<int64_t>(), -2);
  EXPECT_TRUE(scalar(1, kBool).item<bool>());
  EXPECT_EQ(tensor({{1, 2}, {3, 4}}, kInt64).select(1, 1).select(0, 1).item<int64_t>(), 4);
  EXPECT_EQ(error_text<std::invalid_argument>([] { zeros({2}).item<int64_t>(); }),
            "item: one element is required, got shape [2]");
}

TEST(Tensor, DataChecksTheType) {
  EXPECT_EQ(error_text<std::invalid_argument>([] { zeros({1}).data<double>(); }),
            "data: the tensor is float32, read as float64");
}

TEST(Tensor, UndefinedTensorSaysSo) {
  EXPECT_EQ(error_text<std::invalid_argument>([] { Tensor().shape(); }),
            "tensor: used before it was given a value");
  EXPECT_FALSE(Tensor().defined());
}

TEST(Tensor, NegativeAndHugeShapesAreRefused) {
  EXPECT_EQ(error_text<std::invalid_argument>([] {
              zeros({2, -1});
            }),
            "shape: sizes must not be negative, got [2, -1]");
  EXPECT_EQ(error_text<std::invalid_argument>([] {
              zeros({int64_t{1} << 40, int64_t{1} << 40});
            }),
            "shape: too many elements in [1099511627776, 1099511627776]");
}

TEST(Tensor, GradMustFit) {
  const Tensor x = zeros({2});
  EXPECT_EQ(error_text<std::invalid_argument>([&] { x.set_grad(zeros({3})); }),
            "set_grad: the gradient must be float32 of shape [2], got float32 of shape [3]");
}

TEST(BFloat16, RoundsToNearestEvenAndKeepsSpecials) {
  EXPECT_EQ(static_cast<float>(bfloat16(1.0f + 0x1p-8f)), 1.0f);                // tie, to even
  EXPECT_EQ(static_cast<float>(bfloat16(1.0f + 3 * 0x1p-8f)), 1.0f + 0x1p-6f);  // tie, to even
  EXPECT_EQ(static_cast<float>(bfloat16(1.0f + 0x1.01p-8f)), 1.0f + 0x1p-7f);
  EXPECT_EQ(static_cast<float>(bfloat16(3.4e38f)), INFINITY);
  EXPECT_TRUE(std::isnan(static_cast<float>(bfloat16(NAN))));
}

TEST(DTypes, PromoteAsPyTorch) {
  EXPECT_EQ(promote_types(kBool, kInt64), kInt64);
  EXPECT_EQ(promote_types(kInt64, kBFloat16), kBFloat16);
  EXPECT_EQ(promote_types(kFloat64, kFloat32), kFloat64);
}

}  // namespace
}  // namespace chargrad
