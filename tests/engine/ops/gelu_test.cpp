#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "engine/ops.h"
#include "tests/engine/ops/op_testing.h"

namespace chargrad::tests {
namespace {

using testing::ElementsAre;

Tensor exact(const Tensor& x) {
  return gelu(x);
}

Tensor by_tanh(const Tensor& x) {
  return gelu(x, GeluApproximate::kTanh);
}

// Phi(1) = 0.84134475, phi(1) = 0.24197072.
TEST(Gelu, ExactForm) {
  EXPECT_THAT(values(gelu(tensor({-1, 0, 1}))), near({-0.15865525, 0, 0.84134475}, 1e-7));
  EXPECT_THAT(values(gradient(exact, tensor({0, 1}), tensor({1, 2}))),
              near({0.5, 2 * 1.08331547}, 5e-7));
}

TEST(Gelu, TanhForm) {
  EXPECT_THAT(values(by_tanh(tensor({-1, 0, 1}))), near({-0.15880801, 0, 0.84119199}, 1e-7));
  EXPECT_THAT(values(gradient(by_tanh, tensor({0, 1}), tensor({1, 2}))),
              near({0.5, 2 * 1.08296408}, 5e-7));
}

// The fused ops against the formulas written with simple ones.
TEST(Gelu, TanhFormAgreesWithItsTwin) {
  const auto twin = [](const Tensor& x) {
    const Tensor u = std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * (x * x * x));
    return 0.5 * x * (1.0 + tanh(u));
  };
  const Tensor x = tensor({-3, -1.5, -0.2, 0, 0.7, 2.5}, kFloat64);
  EXPECT_THAT(values(by_tanh(x)), near(values(twin(x)), 1e-14));
  EXPECT_THAT(values(gradient(by_tanh, x, x)), near(values(gradient(twin, x, x)), 1e-14));
}

TEST(Gelu, SaturatesWithoutNaN) {
  for (const auto& f : {exact, by_tanh}) {
    for (const DType dtype : {kFloat32, kFloat64, kBFloat16}) {
      const Tensor x = tensor({-100, 100}, dtype);
      EXPECT_THAT(values(f(x)), ElementsAre(0, 100));
      EXPECT_THAT(values(gradient(f, x, ones({2}, dtype))), ElementsAre(0, 1));
    }
  }
}

TEST(Gelu, BFloat16RoundsTheFloat32Result) {
  const Tensor x = tensor({-1.5, 0.25, 3}, kBFloat16);
  for (const auto& f : {exact, by_tanh}) {
    EXPECT_EQ(f(x).dtype(), kBFloat16);
    EXPECT_EQ(values(f(x)), values(f(x.to(kFloat32)).to(kBFloat16)));
  }
}

// Under autocast float32 gives bfloat16 by one rounding, and each gradient has its input's dtype.
TEST(Gelu, Autocast) {
  const AutocastGuard guard(kBFloat16);
  const std::vector<std::pair<DType, DType>> expected = {
      {kFloat32, kBFloat16}, {kBFloat16, kBFloat16}, {kFloat64, kFloat64}};
  for (const auto& [dtype, result] : expected) {
    const Tensor x = tensor({-1.5, 0.25, 3}, dtype);
    EXPECT_EQ(gelu(x).dtype(), result);
    const Tensor want = gelu(x.to(kFloat64));
    EXPECT_EQ(values(gelu(x)), values(want.to(result)));
    const Tensor dx = gradient(exact, x, ones({3}, result));
    EXPECT_EQ(dx.dtype(), dtype);
    // The slope is rounded to bfloat16, half a unit of values below 2.
    EXPECT_THAT(values(dx),
                near(values(gradient(exact, x.to(kFloat64), ones({3}, kFloat64))), 0x1p-8));
  }
}

TEST(Gelu, StridedInput) {
  const Tensor x = tensor({{0, 1, 2}, {3, 4, 5}}).transpose(0, 1);
  EXPECT_EQ(values(gelu(x)), values(gelu(x.contiguous())));
  EXPECT_EQ(values(gradient(exact, x, x)), values(gradient(exact, x.contiguous(), x)));
}

TEST(Gelu, Errors) {
  EXPECT_THAT([] { gelu(Tensor()); }, throws("gelu: input is undefined"));
  EXPECT_THAT([] { gelu(arange(3)); }, throws("gelu: input must be floating, got int64"));
}

}  // namespace
}  // namespace chargrad::tests
