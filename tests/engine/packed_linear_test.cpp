// A packed layer is linear, bit for bit.
#include "engine/packed_linear.h"

#include <gtest/gtest.h>

#include "engine/ops.h"
#include "tests/error_text.h"

namespace chargrad {
namespace {

TEST(PackedLinear, EqualsLinear) {
  manual_seed(1);
  struct Case {
    Shape x;
    int64_t out;
  };
  for (const auto& [shape, out] : std::vector<Case>{
           {{1, 384}, 65}, {{7}, 5}, {{2, 3, 96}, 200}, {{40, 64}, 192}, {{0, 8}, 3}}) {
    for (const DType dtype : {kFloat32, kBFloat16, kFloat64}) {
      const AutocastGuard autocast(dtype);
      const DType stored = dtype == kFloat64 ? kFloat64 : kFloat32;
      const Tensor x = randn(shape, stored), weight = randn({out, shape.back()}, stored);
      const Tensor bias = randn({out}, stored);
      for (const Tensor& b : {bias, Tensor()}) {
        const Tensor y = PackedLinear(weight, b)(x), expected = linear(x, weight, b);
        EXPECT_EQ(y.dtype(), expected.dtype());
        EXPECT_EQ(y.shape(), expected.shape());
        EXPECT_EQ(y.to_vector<double>(), expected.to_vector<double>());
      }
    }
  }
}

TEST(PackedLinear, ReadsAPartOfAWeightAndTransposedRows) {
  manual_seed(2);
  const Tensor weight = narrow(randn({30, 16}), 0, 10, 20), x = randn({16, 4}).transpose(0, 1);
  EXPECT_EQ(PackedLinear(weight)(x).to_vector<float>(), linear(x, weight).to_vector<float>());
}

TEST(PackedLinear, IsACopy) {
  for (const DType dtype : {kFloat32, kFloat64}) {
    const Tensor weight = ones({2, 3}, dtype), bias = ones({2}, dtype);
    const PackedLinear layer(weight, bias);
    mul_(weight, 5);
    mul_(bias, 5);
    EXPECT_EQ(layer(ones({3}, dtype)).to_vector<float>(), (std::vector<float>{4, 4}));
  }
}

TEST(PackedLinear, RefusesNonsense) {
  const PackedLinear layer(ones({2, 3}));
  EXPECT_EQ(error_text<std::invalid_argument>([&] { layer(ones({2})); }),
            "PackedLinear: the last dim of x must be weight's in, got x [2] and weight [2, 3]");
  EXPECT_EQ(error_text<std::invalid_argument>([&] { layer(ones({3}).set_requires_grad()); }),
            "PackedLinear: it has no gradient and x requires one; use linear or a NoGradGuard");
  EXPECT_EQ(error_text<std::invalid_argument>([] { PackedLinear{ones({2})}; }),
            "PackedLinear: weight must have shape [out, in], got [2]");
  EXPECT_EQ(error_text<std::invalid_argument>([] {
              PackedLinear(ones({2, 3}), ones({3}));
            }),
            "PackedLinear: bias must have shape [out], got bias [3] and weight [2, 3]");
}

}  // namespace
}  // namespace chargrad
