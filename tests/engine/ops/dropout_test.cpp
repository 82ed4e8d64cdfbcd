#include "engine/kernels/dropout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/ops.h"

namespace chargrad {
namespace {

using testing::Each;

constexpr DropoutKey kKey = {1337, 5};

std::vector<double> values(const Tensor& x) {
  return x.to_vector<double>();
}

std::vector<double> mask(int64_t n, double p, DropoutKey key) {
  std::vector<double> m(static_cast<size_t>(n));
  kernels::dropout_mask(m.data(), n, p, key);
  return m;
}

TEST(Dropout, MultipliesByTheMaskOfTheKey) {
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16}) {
    const Tensor y = dropout(ones({6, 7}, dtype), 0.5, /*training=*/true, kKey);
    EXPECT_EQ(y.dtype(), dtype);
    EXPECT_EQ(y.shape(), (Shape{6, 7}));
    EXPECT_EQ(values(y), mask(42, 0.5, kKey));
  }
}

// The element's index counts row-major, whatever the strides are.
TEST(Dropout, StridesDoNotMatter) {
  const Tensor x = arange(42, kFloat32).view({7, 6}).transpose(0, 1);
  EXPECT_EQ(values(dropout(x, 0.3, true, kKey)), values(dropout(x.contiguous(), 0.3, true, kKey)));
}

TEST(Dropout, GradientGoesThroughTheSameMask) {
  Tensor x = full({5, 9}, 3, kFloat64);
  x.set_requires_grad();
  const Tensor y = dropout(x, 0.4, true, kKey);
  EXPECT_EQ(y.grad_fn_name(), "dropout");
  // dy with strides of its own.
  const Tensor dy = arange(45, kFloat64).view({9, 5}).transpose(0, 1);
  y.backward(dy);
  const std::vector<double> m = mask(45, 0.4, kKey), d = values(dy), dx = values(x.grad());
  for (size_t i = 0; i < m.size(); ++i) {
    EXPECT_EQ(dx[i], d[i] * m[i]) << i;
  }
}

TEST(Dropout, WithoutAKeyEachCallTakesTheNext) {
  manual_seed(1337);
  const Tensor x = ones({50});
  EXPECT_EQ(values(dropout(x, 0.5)), mask(50, 0.5, {1337, 0}));
  EXPECT_EQ(values(dropout(x, 0.5)), mask(50, 0.5, {1337, 1}));
  // A given key, p = 0 and evaluation take none, and no call draws from the stream.
  dropout(x, 0.5, true, kKey);
  dropout(x, 0);
  dropout(x, 0.5, /*training=*/false);
  EXPECT_EQ(default_generator().dropout_calls(), 2u);
  EXPECT_EQ(default_generator().get_state(), Generator(1337).get_state());
}

TEST(Dropout, OffIsTheIdentity) {
  const Tensor x = arange(5, kFloat32);
  EXPECT_EQ(dropout(x, 0).raw_data(), x.raw_data());
  EXPECT_EQ(dropout(x, 0.9, /*training=*/false).raw_data(), x.raw_data());
  EXPECT_EQ(dropout(x, 1, /*training=*/false).raw_data(), x.raw_data());
}

TEST(Dropout, ProbabilityOneGivesZerosAndNoNaN) {
  Tensor x = tensor({1, -2, std::numeric_limits<double>::infinity()});
  x.set_requires_grad();
  const Tensor y = dropout(x, 1);
  EXPECT_THAT(values(y), Each(0.0));
  y.backward(tensor({1, 2, 3}));
  EXPECT_THAT(values(x.grad()), Each(0.0));
}

TEST(Dropout, NoElements) {
  EXPECT_EQ(dropout(zeros({0, 3}), 0.5).shape(), (Shape{0, 3}));
}

TEST(Dropout, BadArgumentsAreRefused) {
  const auto expect_error = [](const Tensor& x, double p, const std::string& message) {
    try {
      dropout(x, p);
      ADD_FAILURE() << "no error: " << message;
    } catch (const std::invalid_argument& error) {
      EXPECT_EQ(error.what(), message);
    }
  };
  expect_error(ones({2}), -0.1, "dropout: p must be in [0, 1], got -0.1");
  expect_error(ones({2}), 1.1, "dropout: p must be in [0, 1], got 1.1");
  expect_error(ones({2}), std::nan(""), "dropout: p must be in [0, 1], got nan");
  expect_error(ones({2}, kInt64), 0.5, "dropout: input must be floating, got int64");
}

}  // namespace
}  // namespace chargrad
