#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/ops.h"
#include "tests/engine/ops/op_testing.h"

namespace chargrad::tests {
namespace {

using testing::ElementsAre;

constexpr double kInf = std::numeric_limits<double>::infinity();

Tensor softmax_last(const Tensor& x) {
  return softmax(x);
}

// exp(-2), exp(-1), exp(-3), exp(0) over their sum.
TEST(Softmax, LargeInputs) {
  for (const DType dtype : {kFloat32, kFloat64}) {
    EXPECT_THAT(values(softmax(tensor({1000, 1001, 999, 1002}, dtype))),
                near({0.08714432, 0.23688282, 0.03205860, 0.64391426}, 1e-7));
    EXPECT_THAT(values(softmax(tensor({-kInf, 0}, dtype))), ElementsAre(0, 1));
    EXPECT_THAT(values(log_softmax(tensor({-40, 94}, dtype))), ElementsAre(-134, 0));
  }
}

TEST(Softmax, RowOfMinusInfinityIsNaN) {
  for (const double y : values(softmax(tensor({-kInf, -kInf})))) {
    EXPECT_TRUE(std::isnan(y));
  }
}

// The scores 8 and 0, as they are and divided by sqrt(64): dp0/ds0 = p0 p1.
TEST(Softmax, ScalingByTheHeadWidthKeepsTheGradient) {
  for (const DType dtype : {kFloat32, kFloat64}) {
    const Tensor dy = tensor({1, 0}, dtype);
    const double flat = gradient(softmax_last, tensor({8, 0}, dtype), dy).item({0});
    const double steep = gradient(softmax_last, tensor({1, 0}, dtype), dy).item({0});
    EXPECT_NEAR(flat, 3.3523767e-4, 1e-10 + (dtype == kFloat32 ? 1e-7 : 0));
    EXPECT_NEAR(steep, 0.19661193, 1e-7);
  }
}

// Down the columns: softmax(0, log 3) and softmax(log 2, 0).
TEST(Softmax, EveryDim) {
  const Tensor x = tensor({{0, std::log(2.0)}, {std::log(3.0), 0}}, kFloat64);
  const std::vector<double> down = {0.25, 2.0 / 3, 0.75, 1.0 / 3};
  const std::vector<double> across = {1.0 / 3, 2.0 / 3, 0.75, 0.25};
  EXPECT_THAT(values(softmax(x, 0)), near(down, 1e-15));
  EXPECT_THAT(values(softmax(x, -2)), near(down, 1e-15));
  EXPECT_THAT(values(softmax(x, 1)), near(across, 1e-15));
  EXPECT_THAT(values(softmax(x)), near(across, 1e-15));
  EXPECT_TRUE(softmax(x, 0).is_contiguous());
  // The columns' gradients are those of the rows of the transpose.
  const Tensor dy = tensor({{1, 2}, {3, 5}}, kFloat64);
  const auto first_dim = [](const Tensor& in) { return softmax(in, 0); };
  EXPECT_EQ(values(gradient(first_dim, x, dy)),
            values(gradient(softmax_last, x.transpose(0, 1), dy.transpose(0, 1)).transpose(0, 1)));
}

TEST(Softmax, MiddleDimOfThree) {
  const Tensor x = tensor({1, 2, 3, 4, 0, -1, 2, 1, 5, 0, 1, 3}, kFloat64).view({2, 3, 2});
  const Tensor y = softmax(x, 1);
  for (const int64_t i : {0, 1}) {
    for (const int64_t k : {0, 1}) {
      double total = 0;
      for (int64_t j = 0; j < 3; ++j) {
        total += std::exp(x.item({i, j, k}));
      }
      for (int64_t j = 0; j < 3; ++j) {
        EXPECT_NEAR(y.item({i, j, k}), std::exp(x.item({i, j, k})) / total, 1e-15);
        EXPECT_NEAR(log_softmax(x, 1).item({i, j, k}), x.item({i, j, k}) - std::log(total), 1e-14);
      }
    }
  }
}

TEST(Softmax, ShapesWithoutRowsOrColumns) {
  for (const Shape& shape : {Shape{0}, Shape{2, 0}, Shape{0, 3}}) {
    for (const int64_t dim : {0, -1}) {
      EXPECT_EQ(softmax(zeros(shape), dim).shape(), shape);
      EXPECT_EQ(log_softmax(zeros(shape), dim).shape(), shape);
    }
  }
  EXPECT_EQ(softmax(scalar(3), 0).item(), 1);
  EXPECT_EQ(log_softmax(scalar(3), -1).item(), 0);
}

TEST(Softmax, RecordsOneOpOnEveryDim) {
  Tensor x = tensor({{1, 2}, {3, 4}});
  x.set_requires_grad();
  EXPECT_EQ(softmax(x, 0).grad_fn_name(), "softmax");
  EXPECT_EQ(softmax(x, 1).grad_fn_name(), "softmax");
  EXPECT_EQ(log_softmax(x, 0).grad_fn_name(), "log_softmax");
}

TEST(Softmax, BFloat16RoundsTheFloat32Result) {
  const Tensor x = tensor({-1.5, 0.25, 3}, kBFloat16);
  EXPECT_EQ(values(softmax(x)), values(softmax(x.to(kFloat32)).to(kBFloat16)));
  EXPECT_EQ(values(log_softmax(x)), values(log_softmax(x.to(kFloat32)).to(kBFloat16)));
  EXPECT_EQ(gradient(softmax_last, x, x).dtype(), kBFloat16);
}

// softmax from simple ops, values and gradients.
TEST(Softmax, AgreesWithItsTwin) {
  const auto twin = [](const Tensor& x) {
    const Tensor e = exp(x - amax(x, {-1}, /*keepdim=*/true).detach());
    return e / sum(e, {-1}, /*keepdim=*/true);
  };
  const Tensor x = tensor({{1, -2, 0.5}, {3, 3, -1}}, kFloat64);
  const Tensor dy = tensor({{1, 2, -1}, {0.5, 0, 4}}, kFloat64);
  EXPECT_THAT(values(softmax(x)), near(values(twin(x)), 1e-15));
  EXPECT_THAT(values(gradient(softmax_last, x, dy)), near(values(gradient(twin, x, dy)), 1e-15));
  const auto fused = [](const Tensor& in) { return log_softmax(in); };
  const auto log_twin = [&](const Tensor& in) { return log(twin(in)); };
  EXPECT_THAT(values(fused(x)), near(values(log_twin(x)), 1e-14));
  EXPECT_THAT(values(gradient(fused, x, dy)), near(values(gradient(log_twin, x, dy)), 1e-14));
}

TEST(Softmax, Errors) {
  EXPECT_THAT(
      [] {
        softmax(zeros({4, 7}), 3);
      },
      throws("softmax: dim 3 is out of range for shape [4, 7]"));
  EXPECT_THAT(
      [] {
        log_softmax(zeros({4, 7}), -3);
      },
      throws("log_softmax: dim -3 is out of range for shape [4, 7]"));
  EXPECT_THAT([] { softmax(arange(3)); }, throws("softmax: input must be floating, got int64"));
  EXPECT_THAT([] { log_softmax(Tensor()); }, throws("log_softmax: input is undefined"));
}

}  // namespace
}  // namespace chargrad::tests
