#include "models/causal_average.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/error_text.h"
#include "tests/models/lesson_testing.h"

namespace chargrad {
namespace {

// Sums of at most 8 standard normals in float32: 8 roundings of 2^-24, of values below about 10.
constexpr double kTolerance = 8 * 10 * 0x1p-24;

TEST(CausalAverage, LoopAndMatmulAgreeOnTheLessonsShape) {
  Generator generator(1337);
  const Tensor x = randn({4, 8, 384}, kFloat32, generator);
  const Tensor loop = causal_average_loop(x), product = causal_average_matmul(x);
  EXPECT_EQ(loop.shape(), (Shape{4, 8, 384}));
  EXPECT_EQ(product.shape(), (Shape{4, 8, 384}));
  EXPECT_LT(max_difference(loop, product), kTolerance);
  // Position 0 averages itself alone.
  EXPECT_EQ(product.select(1, 0).to_vector<float>(), x.select(1, 0).to_vector<float>());
  EXPECT_LT(max_difference(product.select(1, 7), mean(x, {1})), kTolerance);
}

TEST(CausalAverage, Weights) {
  const Tensor w = causal_average_weights(8);
  EXPECT_THAT(w.select(0, 0).to_vector<float>(), testing::ElementsAre(1, 0, 0, 0, 0, 0, 0, 0));
  for (int64_t t = 0; t < 8; ++t) {
    for (int64_t j = 0; j < 8; ++j) {
      const double expected = j <= t ? 1.0 / static_cast<double>(t + 1) : 0;
      EXPECT_NEAR(w.item({t, j}), expected, 0x1p-24);
    }
  }
}

TEST(CausalAverage, GradientsOfBothAgree) {
  Generator generator(7);
  const Tensor a = randn({2, 5, 3}, kFloat64, generator).set_requires_grad();
  const Tensor b = clone(a.detach()).set_requires_grad();
  const Tensor upstream = randn({2, 5, 3}, kFloat64, generator);
  causal_average_loop(a).backward(upstream);
  causal_average_matmul(b).backward(upstream);
  EXPECT_LT(max_difference(a.grad(), b.grad()), 1e-14);
}

TEST(CausalAverage, RefusesOtherRanks) {
  EXPECT_EQ(error_text<std::invalid_argument>([] {
              causal_average_loop(zeros({2, 3}));
            }),
            "causal_average_loop: x must be (B, T, C), got shape [2, 3]");
  EXPECT_EQ(error_text<std::invalid_argument>([] {
              causal_average_matmul(zeros({2, 3}));
            }),
            "causal_average_matmul: x must be (B, T, C), got shape [2, 3]");
}

}  // namespace
}  // namespace chargrad
