// to_string against what PyTorch prints.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "engine/ops.h"

namespace chargrad {
namespace {

TEST(Print, FourDigits) {
  EXPECT_EQ(to_string(tensor({{0.29611194, 0.51656121}, {0.25167, 0.6886}})),
            "tensor([[0.2961, 0.5166],\n        [0.2517, 0.6886]])");
}

TEST(Print, ScalarsAndWholeNumbers) {
  EXPECT_EQ(to_string(scalar(0.5)), "tensor(0.5000)");
  EXPECT_EQ(to_string(tensor({1, 2, -3})), "tensor([ 1.,  2., -3.])");
  EXPECT_EQ(to_string(tensor({0, 0})), "tensor([0., 0.])");
  EXPECT_EQ(to_string(arange(3)), "tensor([0, 1, 2])");
  EXPECT_EQ(to_string(tensor({1, 0}, kBool)), "tensor([ True, False])");
  EXPECT_EQ(to_string(tensor({10, -5}, kInt64)), "tensor([10, -5])");
}

// As PyTorch: integers as they are, where doubles stand further apart than 1.
TEST(Print, LargeIntegers) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  const auto integers = [](const std::vector<int64_t>& values) {
    return from_vector(values, {static_cast<int64_t>(values.size())});
  };
  EXPECT_EQ(to_string(integers({9007199254740993, 1})),
            "tensor([9007199254740993,                1])");
  EXPECT_EQ(to_string(integers({kLeast, 5})),
            "tensor([-9223372036854775808,                    5])");
  EXPECT_EQ(to_string(from_vector<int64_t>({kLeast + 1}, {})), "tensor(-9223372036854775807)");
  std::vector<int64_t> many(1001);
  std::iota(many.begin(), many.end(), int64_t{1} << 62);
  EXPECT_EQ(to_string(integers(many)),
            "tensor([4611686018427387904, 4611686018427387905, 4611686018427387906,\n"
            "         ..., 4611686018427388902, 4611686018427388903,\n"
            "        4611686018427388904])");
}

TEST(Print, ScientificWhenTheRangeIsWide) {
  EXPECT_EQ(to_string(tensor({0.00001, 0.5})), "tensor([1.0000e-05, 5.0000e-01])");
  EXPECT_EQ(to_string(tensor({1.5, 2000})), "tensor([1.5000e+00, 2.0000e+03])");
  EXPECT_EQ(to_string(tensor({1, 2000})), "tensor([1.0000e+00, 2.0000e+03])");
  EXPECT_EQ(to_string(tensor({0.00005})), "tensor([5.0000e-05])");
  EXPECT_EQ(to_string(tensor({2e8})), "tensor([2.0000e+08])");
}

TEST(Print, NonFinite) {
  EXPECT_EQ(to_string(tensor({-INFINITY, 0.5, NAN})), "tensor([  -inf, 0.5000,    nan])");
}

TEST(Print, DTypeGradFnAndRequiresGrad) {
  EXPECT_EQ(to_string(tensor({0.5}, kFloat64)), "tensor([0.5000], dtype=float64)");
  Tensor x = tensor({0.5, 0.25});
  x.set_requires_grad();
  EXPECT_EQ(to_string(x), "tensor([0.5000, 0.2500], requires_grad=True)");
  EXPECT_EQ(to_string(softmax(x)), "tensor([0.5622, 0.4378], grad_fn=<SoftmaxBackward>)");
  EXPECT_EQ(to_string(log_softmax(x)), "tensor([-0.5759, -0.8259], grad_fn=<LogSoftmaxBackward>)");
}

TEST(Print, LongRowsWrapAtEightyColumns) {
  EXPECT_EQ(to_string(full({12}, 0.5)),
            "tensor([0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000,\n"
            "        0.5000, 0.5000, 0.5000])");
}

TEST(Print, LargeTensorsAreSummarised) {
  EXPECT_EQ(to_string(arange(1001)), "tensor([   0,    1,    2,  ...,  998,  999, 1000])");
  EXPECT_EQ(to_string(zeros({1001, 2})),
            "tensor([[0., 0.],\n        [0., 0.],\n        [0., 0.],\n        ...,\n"
            "        [0., 0.],\n        [0., 0.],\n        [0., 0.]])");
}

TEST(Print, HigherRanksAreSeparatedByBlankLines) {
  EXPECT_EQ(to_string(zeros({2, 1, 2})), "tensor([[[0., 0.]],\n\n        [[0., 0.]]])");
}

TEST(Print, EmptyAndUndefined) {
  EXPECT_EQ(to_string(zeros({0})), "tensor([])");
  EXPECT_EQ(to_string(zeros({2, 0})), "tensor([], size=(2, 0))");
  EXPECT_EQ(to_string(Tensor()), "tensor(undefined)");
}

TEST(Print, SuffixMovesToItsOwnLineWhenItDoesNotFit) {
  Tensor x = full({9}, 0.5);
  x.set_requires_grad();
  EXPECT_EQ(to_string(x),
            "tensor([0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000],\n"
            "       requires_grad=True)");
}

}  // namespace
}  // namespace chargrad
