#include "engine/kernels/cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/kernels/cross_entropy_ref.h"
#include "tests/engine/kernels/kernel_testing.h"

namespace chargrad::kernels {
namespace {

constexpr int64_t kIgnore = -100;

struct Result {
  CrossEntropy value;
  std::vector<double> lse;
};

template <class S>
Result forward(const std::vector<S>& x, const std::vector<int64_t>& target) {
  const auto rows = static_cast<int64_t>(target.size());
  const int64_t V = rows == 0 ? 1 : static_cast<int64_t>(x.size()) / rows;
  Guarded<S> in(x);
  Guarded<double> lse(rows);
  const CrossEntropy value =
      cross_entropy_forward(in.data(), target.data(), rows, V, kIgnore, lse.data());
  EXPECT_TRUE(lse.intact());
  return {value, lse.get()};
}

// Also in place, to the bit.
template <class S>
std::vector<S> backward(const std::vector<S>& x, const std::vector<int64_t>& target,
                        const std::vector<double>& lse, double scale) {
  const auto rows = static_cast<int64_t>(target.size());
  Guarded<S> in(x), out(static_cast<int64_t>(x.size()));
  cross_entropy_backward(in.data(), target.data(), lse.data(), rows,
                         static_cast<int64_t>(x.size()) / rows, kIgnore, scale, out.data());
  EXPECT_TRUE(out.intact());
  cross_entropy_backward(in.data(), target.data(), lse.data(), rows,
                         static_cast<int64_t>(x.size()) / rows, kIgnore, scale, in.data());
  EXPECT_TRUE(in.intact() && same_bits(in.get(), out.get()));
  return out.get();
}

// Every third row is ignored.
std::vector<int64_t> targets(int64_t rows, int64_t V) {
  std::vector<int64_t> target(static_cast<size_t>(rows));
  for (int64_t i = 0; i < rows; ++i) {
    target[static_cast<size_t>(i)] = i % 3 == 2 ? kIgnore : (i * 7 + V / 2) % V;
  }
  return target;
}

template <class S>
void expect_agreement(int64_t V) {
  const std::vector<S> x = random_values<S>(7 * V, 1, -6, 6);
  const std::vector<int64_t> target = targets(7, V);
  const Result got = forward(x, target);
  const Result want = forward(to_double(x), target);
  EXPECT_EQ(got.value.count, 5);
  EXPECT_EQ(want.value.count, 5);
  // The relative error of the sum of exponentials, which is softmax's 1.5e-6, is an absolute
  // one of its logarithm.
  EXPECT_TRUE(near(std::vector<double>{got.value.loss}, {want.value.loss}, 1.5e-6, 0));
  EXPECT_TRUE(near(got.lse, want.lse, 1.5e-6, 0));
  EXPECT_TRUE(near(backward(x, target, want.lse, 0.25),
                   backward(to_double(x), target, want.lse, 0.25), 5e-8, 1.5e-6 + rounding_of<S>));
}

TEST(CrossEntropy, AgreesWithDoubleAtOddLengths) {
  std::vector<int64_t> lengths = odd_lengths();
  lengths.push_back(2 * 2048 + 37);
  for (const int64_t V : lengths) {
    if (V == 0) {
      continue;
    }
    SCOPED_TRACE(V);
    expect_agreement<float>(V);
    expect_agreement<bfloat16>(V);
  }
}

TEST(CrossEntropy, Extremes) {
  const std::vector<float> x = {1000, 0, 1000, 0};
  const Result right = forward(x, {0, kIgnore});
  EXPECT_EQ(right.value.loss, 0);
  EXPECT_EQ(right.value.count, 1);
  EXPECT_EQ(backward(x, {0, kIgnore}, right.lse, 1), (std::vector<float>{0, 0, 0, 0}));
  const Result wrong = forward(x, {kIgnore, 1});
  EXPECT_EQ(wrong.value.loss, 1000);
  EXPECT_EQ(backward(x, {kIgnore, 1}, wrong.lse, 1), (std::vector<float>{0, 0, 1, -1}));
}

TEST(CrossEntropy, MaskedClassesAndInfiniteLoss) {
  const auto inf = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {-inf, 0, 0};
  const Result r = forward(x, {1});
  EXPECT_NEAR(r.value.loss, std::log(2.0), 1e-7);
  EXPECT_TRUE(near(backward(x, {1}, r.lse, 1), {0, -0.5, 0.5}, 1e-7, 0));
  EXPECT_EQ(forward(x, {0}).value.loss, HUGE_VAL);
  EXPECT_TRUE(std::isnan(forward<float>({-inf, -inf}, {0}).value.loss));
}

// Where the target holds all the probability its gradient is a small difference, made before it is
// rounded: exp(-8) of 1.
TEST(CrossEntropy, BFloat16GradientOfTheTargetIsRoundedOnce) {
  const std::vector<bfloat16> x = {8, 0};
  const std::vector<bfloat16> dx = backward(x, {0}, forward(x, {0}).lse, 1);
  // 1 - p is off by what p is: two units of 6e-8.
  EXPECT_TRUE(near(dx, {-3.3535013e-4, 3.3535013e-4}, 1.2e-7, kBFloat16Rounding));
}

TEST(CrossEntropy, AllIgnoredIsNaN) {
  const Result r = forward<float>({1, 2, 3, 4}, {kIgnore, kIgnore});
  EXPECT_TRUE(std::isnan(r.value.loss));
  EXPECT_EQ(r.value.count, 0);
  EXPECT_EQ(r.lse, (std::vector<double>{0, 0}));
  EXPECT_EQ(backward<float>({1, 2, 3, 4}, {kIgnore, kIgnore}, r.lse, NAN),
            (std::vector<float>{0, 0, 0, 0}));
  EXPECT_TRUE(std::isnan(forward<float>({}, {}).value.loss));
}

// Adding a large constant changes nothing but the rounding of the logits themselves, which here
// are exact: the gradient keeps float's precision.
TEST(CrossEntropy, LargeOffsetsKeepPrecision) {
  const std::vector<float> x = {0.5, 1, -2, 3}, shifted = {4096.5, 4097, 4094, 4099};
  EXPECT_TRUE(near(backward(shifted, {2}, forward(shifted, {2}).lse, 1),
                   to_double(backward(x, {2}, forward(x, {2}).lse, 1)), 2e-7, 0));
}

TEST(CrossEntropy, RefGradientIsTheDerivative) {
  const std::vector<double> x = random_values<double>(35, 2, -2, 2);
  const std::vector<int64_t> target = targets(7, 5);
  const auto value = [&](const std::vector<double>& at) { return forward(at, target).value.loss; };
  const Result r = forward(x, target);
  const std::vector<double> dx =
      backward(x, target, r.lse, 1.0 / static_cast<double>(r.value.count));
  // h^2 / 6 = 1.7e-11; rounding 4e-16 * 2 / 1e-5.
  EXPECT_TRUE(near(dx, central_differences(value, x), 1e-9, 0));
}

TEST(CrossEntropy, SameForAllThreadCounts) {
  const int64_t rows = 900, V = 65;
  const std::vector<float> x = random_values<float>(rows * V, 3, -3, 3);
  const std::vector<int64_t> target = targets(rows, V);
  EXPECT_TRUE(same_for_all_thread_counts<double>([&] {
    Result r = forward(x, target);
    r.lse.push_back(r.value.loss);
    return r.lse;
  }));
  const std::vector<double> lse = forward(x, target).lse;
  EXPECT_TRUE(same_for_all_thread_counts<float>([&] { return backward(x, target, lse, 0.5); }));
}

}  // namespace
}  // namespace chargrad::kernels
