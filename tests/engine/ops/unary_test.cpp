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

TEST(Unary, Values) {
  EXPECT_THAT(values(exp(tensor({-1, 0, 1}))), near({0.36787944, 1, 2.71828183}, 3e-7));
  EXPECT_THAT(values(log(tensor({0.5, 1, 10}))), near({-0.69314718, 0, 2.30258509}, 3e-7));
  EXPECT_THAT(values(sqrt(tensor({0, 2, 9}))), near({0, 1.41421356, 3}, 3e-7));
  EXPECT_THAT(values(tanh(tensor({-1, 0, 0.5}))), near({-0.76159416, 0, 0.46211716}, 1e-7));
  EXPECT_THAT(values(sigmoid(tensor({-1, 0, 2}))), near({0.26894142, 0.5, 0.88079708}, 1e-7));
  EXPECT_THAT(values(relu(tensor({-1, 0, 2}))), ElementsAre(0, 0, 2));
}

TEST(Unary, Gradients) {
  const Tensor dy = tensor({1, 2});
  EXPECT_THAT(values(gradient(exp, tensor({0, 1}), dy)), near({1, 2 * 2.71828183}, 1e-6));
  EXPECT_THAT(values(gradient(log, tensor({0.5, 4}), dy)), near({2, 0.5}, 1e-6));
  EXPECT_THAT(values(gradient(sqrt, tensor({4, 16}), dy)), near({0.25, 0.25}, 1e-6));
  EXPECT_THAT(values(gradient(tanh, tensor({0, 0.5}), dy)), near({1, 2 * 0.78644773}, 1e-6));
  EXPECT_THAT(values(gradient(sigmoid, tensor({0, 2}), dy)), near({0.25, 2 * 0.10499359}, 1e-6));
  EXPECT_THAT(values(gradient(relu, tensor({-3, 3}), dy)), ElementsAre(0, 2));
  EXPECT_THAT(values(gradient(relu, tensor({0, 1}), dy)), ElementsAre(0, 2));  // 0 at 0
}

TEST(Unary, SaturatesWithoutNaN) {
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16}) {
    const Tensor x = tensor({-1000, 1000}, dtype), dy = ones({2}, dtype);
    EXPECT_THAT(values(tanh(x)), ElementsAre(-1, 1));
    EXPECT_THAT(values(sigmoid(x)), ElementsAre(0, 1));
    EXPECT_THAT(values(exp(x)), ElementsAre(0, kInf));
    EXPECT_THAT(values(gradient(tanh, x, dy)), ElementsAre(0, 0));
    EXPECT_THAT(values(gradient(sigmoid, x, dy)), ElementsAre(0, 0));
  }
}

TEST(Unary, KeepsShapeAndDtype) {
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16}) {
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{2, 0, 3}, Shape{2, 3}}) {
      const Tensor y = tanh(ones(shape, dtype));
      EXPECT_EQ(y.shape(), shape);
      EXPECT_EQ(y.dtype(), dtype);
      EXPECT_TRUE(y.is_contiguous());
    }
  }
}

TEST(Unary, BFloat16RoundsTheFloat32Result) {
  const Tensor x = tensor({-1.5, 0.25, 3}, kBFloat16);
  EXPECT_EQ(values(exp(x)), values(exp(x.to(kFloat32)).to(kBFloat16)));
  const Tensor dx = gradient(exp, tensor({0.25}, kBFloat16), ones({1}, kBFloat16));
  EXPECT_EQ(dx.dtype(), kBFloat16);
  EXPECT_NEAR(dx.item(), std::exp(0.25), 0.004);  // half a unit of bfloat16 at 1.28
}

TEST(Unary, IntegersAndBoolsInFloat32) {
  for (const auto op : {exp, log, sqrt, tanh, sigmoid}) {
    for (const DType dtype : {kInt64, kBool}) {
      const Tensor x = tensor({1, 0, 4}, dtype);
      const Tensor y = op(x);
      EXPECT_EQ(y.dtype(), kFloat32);
      EXPECT_EQ(values(y), values(op(x.to(kFloat32))));
    }
  }
}

TEST(Unary, ReluOfIntegersIsInteger) {
  const Tensor y = relu(from_vector<int64_t>({-3, 0, 9007199254740993}, {3}));
  EXPECT_EQ(y.dtype(), kInt64);
  EXPECT_THAT(y.to_vector<int64_t>(), ElementsAre(0, 0, 9007199254740993));
}

TEST(Unary, StridedInputAndGradient) {
  const Tensor x = tensor({{0, 1, 2}, {3, 4, 5}}).transpose(0, 1);  // (3, 2)
  EXPECT_THAT(values(relu(x)), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(values(gradient(relu, x, x)), ElementsAre(0, 3, 1, 4, 2, 5));
}

// exp saves its output: changing that is noticed when backward reads it.
TEST(Unary, ChangedOutputIsRefused) {
  Tensor x = tensor({1, 2});
  x.set_requires_grad();
  const Tensor y = exp(x);
  {
    const NoGradGuard no_grad;
    mul_(y, 2);
  }
  EXPECT_THAT([&] { y.backward(ones({2})); },
              throws("backward: a tensor of shape [2] saved by op 'exp' was changed in place since "
                     "then (version 1, saved at 0)"));
}

TEST(Unary, Errors) {
  EXPECT_THAT([] { exp(Tensor()); }, throws("exp: input is undefined"));
  EXPECT_THAT([] { relu(Tensor()); }, throws("relu: input is undefined"));
  EXPECT_THAT([] { relu(zeros({2}, kBool)); }, throws("relu: input must be floating, got bool"));
}

}  // namespace
}  // namespace chargrad::tests
