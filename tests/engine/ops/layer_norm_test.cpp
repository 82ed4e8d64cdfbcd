#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/ops.h"
#include "tests/engine/ops/op_testing.h"

namespace chargrad::tests {
namespace {

using testing::ElementsAre;

// Mean 2, variance 2/3.
TEST(LayerNorm, Values) {
  const double h = 1 / std::sqrt(2.0 / 3 + 1e-5);
  EXPECT_THAT(values(layer_norm(tensor({1, 2, 3}))), near({-h, 0, h}, 2e-7));
  EXPECT_THAT(values(layer_norm(tensor({1, 2, 3}), tensor({2, 3, 4}), tensor({1, 1, 0}))),
              near({1 - 2 * h, 1, 4 * h}, 1e-6));
  const double wide = 1 / std::sqrt(2.0 / 3 + 0.5);
  EXPECT_THAT(values(layer_norm(tensor({1, 2, 3}), {}, {}, 0.5)), near({-wide, 0, wide}, 2e-7));
}

// rstd = 1e5^(1/2) = 316.23; dx = rstd (dy - mean dy).
TEST(LayerNorm, ConstantRow) {
  for (const DType dtype : {kFloat32, kFloat64}) {
    const auto f = [dtype](const Tensor& x) {
      return layer_norm(x, ones({3}, dtype), zeros({3}, dtype));
    };
    const Tensor x = tensor({2, 2, 2}, dtype);
    EXPECT_THAT(values(f(x)), ElementsAre(0, 0, 0));
    EXPECT_THAT(values(gradient(f, x, tensor({1, 0, 0}, dtype))),
                near({210.8185, -105.40926, -105.40926}, 1e-4));
  }
}

TEST(LayerNorm, WidthOne) {
  const auto f = [](const Tensor& x) { return layer_norm(x, tensor({2}), tensor({0.5})); };
  const Tensor x = tensor({7, -3}).view({2, 1});
  EXPECT_THAT(values(f(x)), ElementsAre(0.5, 0.5));
  EXPECT_THAT(values(gradient(f, x, tensor({1, 3}).view({2, 1}))), ElementsAre(0, 0));
}

TEST(LayerNorm, AgreesWithItsTwin) {
  const auto twin = [](const Tensor& x, const Tensor& weight, const Tensor& bias) {
    const Tensor centred = x - mean(x, {-1}, /*keepdim=*/true);
    const Tensor variance = var(x, {-1}, /*correction=*/0, /*keepdim=*/true);
    return centred / sqrt(variance + 0.1) * weight + bias;
  };
  const auto run = [](const auto& f) {
    std::vector<Tensor> in = {tensor({{1, -2, 0.5}, {3, 3, -1}}, kFloat64),
                              tensor({0.5, 2, -1}, kFloat64), tensor({1, 0, 3}, kFloat64)};
    for (Tensor& x : in) {
      x.set_requires_grad();
    }
    const Tensor y = f(in[0], in[1], in[2]);
    y.backward(tensor({{1, 2, -1}, {0.5, 0, 4}}, kFloat64));
    return std::vector<Tensor>{y, in[0].grad(), in[1].grad(), in[2].grad()};
  };
  const auto fused = run([](const Tensor& x, const Tensor& weight, const Tensor& bias) {
    return layer_norm(x, weight, bias, 0.1);
  });
  const auto unfused = run(twin);
  for (size_t i = 0; i < fused.size(); ++i) {
    EXPECT_THAT(values(fused[i]), near(values(unfused[i]), 1e-14)) << i;
  }
}

// A parameter alone wants a gradient; and so does the input.
TEST(LayerNorm, EachInputMayBeTheOnlyOneWithAGradient) {
  const Tensor x = tensor({{1, -2, 0.5}, {3, 3, -1}}), dy = tensor({{1, 2, -1}, {0.5, 0, 4}});
  const Tensor weight = tensor({0.5, 2, -1}), bias = tensor({1, 0, 3});
  Tensor all[] = {x.clone(), weight.clone(), bias.clone()};
  for (Tensor& leaf : all) {
    leaf.set_requires_grad();
  }
  layer_norm(all[0], all[1], all[2]).backward(dy);
  for (size_t i = 0; i < 3; ++i) {
    Tensor in[] = {x.clone(), weight.clone(), bias.clone()};
    in[i].set_requires_grad();
    layer_norm(in[0], in[1], in[2]).backward(dy);
    EXPECT_EQ(values(in[i].grad()), values(all[i].grad())) << i;
    EXPECT_FALSE(in[(i + 1) % 3].grad().defined());
  }
}

TEST(LayerNorm, StridedInputs) {
  const Tensor x = tensor({{1, 3}, {-2, 3}, {0.5, -1}}).transpose(0, 1);  // (2, 3)
  const Tensor weight = tensor({{0.5, 9}, {2, 9}, {-1, 9}}).select(1, 0);
  EXPECT_EQ(values(layer_norm(x, weight)), values(layer_norm(x.contiguous(), weight.contiguous())));
}

TEST(LayerNorm, ShapesWithoutRowsOrColumns) {
  EXPECT_EQ(layer_norm(zeros({0, 3}), ones({3})).shape(), (Shape{0, 3}));
  EXPECT_EQ(layer_norm(zeros({2, 0}), ones({0})).shape(), (Shape{2, 0}));
}

TEST(LayerNorm, BFloat16RoundsTheFloat32Result) {
  const Tensor x = tensor({-1.5, 0.25, 3}, kBFloat16), weight = tensor({0.3, 1, 2});
  const Tensor want = layer_norm(x.to(kFloat32), weight).to(kBFloat16);
  EXPECT_EQ(layer_norm(x, weight).dtype(), kBFloat16);
  EXPECT_EQ(values(layer_norm(x, weight)), values(want));
  EXPECT_EQ(layer_norm(x, weight.to(kBFloat16)).dtype(), kBFloat16);
}

// Under autocast float32 gives bfloat16 by one rounding; each gradient has its input's dtype, and
// dx is not rounded on the way to float32.
TEST(LayerNorm, Autocast) {
  const Tensor dy = tensor({{1, 2, -1}, {0.5, 0, 4}}, kBFloat16);
  const auto run = [&dy](DType dtype, DType result) {
    std::vector<Tensor> in = {tensor({{1, -2, 0.5}, {3, 3, -1}}, dtype),
                              tensor({0.5, 2, -1}, dtype == kFloat64 ? kFloat64 : kFloat32),
                              tensor({1, 0, 3}, dtype == kFloat64 ? kFloat64 : kFloat32)};
    for (Tensor& x : in) {
      x.set_requires_grad();
    }
    const Tensor y = layer_norm(in[0], in[1], in[2], 0.1);
    EXPECT_EQ(y.dtype(), result);
    y.backward(dy.to(result));
    for (const Tensor& x : in) {
      EXPECT_EQ(x.grad().dtype(), x.dtype());
    }
    return std::vector<Tensor>{y, in[0].grad(), in[1].grad(), in[2].grad()};
  };
  const auto truth = run(kFloat64, kFloat64);
  for (const bool autocast : {false, true}) {
    const AutocastGuard guard(autocast ? kBFloat16 : kFloat32);
    const auto narrow = run(kBFloat16, kBFloat16);
    const auto wide = run(kFloat32, autocast ? kBFloat16 : kFloat32);
    EXPECT_EQ(values(run(kFloat64, kFloat64)[0]), values(truth[0]));
    EXPECT_EQ(values(narrow[0]), values(truth[0].to(kBFloat16)));
    if (autocast) {
      EXPECT_EQ(values(wide[0]), values(truth[0].to(kBFloat16)));
    }
    EXPECT_EQ(values(narrow[1]), values(truth[1].to(kBFloat16)));
    for (size_t i = 1; i < 4; ++i) {
      EXPECT_THAT(values(wide[i]), near(values(truth[i]), 2e-6)) << i;
    }
  }
}

TEST(LayerNorm, Errors) {
  EXPECT_THAT([] { layer_norm(scalar(1)); },
              throws("layer_norm: input must have a dim, got shape []"));
  EXPECT_THAT(
      [] {
        layer_norm(zeros({2, 3}), ones({4}));
      },
      throws("layer_norm: weight must have shape [3], got [4]"));
  EXPECT_THAT(
      [] {
        layer_norm(zeros({2, 3}), {}, ones({1, 3}));
      },
      throws("layer_norm: bias must have shape [3], got [1, 3]"));
  EXPECT_THAT(
      [] {
        layer_norm(zeros({2, 3}), ones({3}, kFloat64));
      },
      throws("layer_norm: weight must be float32 as the input, got float64"));
  EXPECT_THAT(
      [] {
        layer_norm(zeros({2, 3}), {}, {}, -1);
      },
      throws("layer_norm: eps must not be negative, got -1"));
  EXPECT_THAT([] { layer_norm(arange(3)); },
              throws("layer_norm: input must be floating, got int64"));
}

}  // namespace
}  // namespace chargrad::tests
