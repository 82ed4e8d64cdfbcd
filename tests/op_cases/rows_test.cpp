// Every row in float32, as the CPU tier computes it, against the same row in double; and every row
// with its inputs, or the gradient that comes in, stored in another order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>

#include "engine/ops.h"
#include "tests/op_cases/op_cases.h"

namespace chargrad::tests {

// How GoogleTest prints the parameter; the name is its own.
// NOLINTNEXTLINE(readability-identifier-naming)
static void PrintTo(const OpCase& row, std::ostream* out) {
  *out << row.name;
}

namespace {

std::string test_name(const testing::TestParamInfo<OpCase>& info) {
  std::string name = info.param.name;
  std::replace_if(
      name.begin(), name.end(),
      [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

// The same values in memory that holds the last two dims in the other order, or one dim with gaps.
Tensor restrided(const Tensor& x) {
  const NoGradGuard no_grad;
  if (x.dim() == 0) {
    return x.detach();
  }
  if (x.dim() == 1) {
    return select(stack({x, zeros_like(x)}, 1), 1, 0).detach();
  }
  return x.transpose(-1, -2).clone().transpose(-1, -2).detach();
}

std::vector<Tensor> leaves(const std::vector<Tensor>& inputs, Tensor (*change)(const Tensor&)) {
  std::vector<Tensor> changed;
  changed.reserve(inputs.size());
  for (const Tensor& x : inputs) {
    changed.push_back(change(x).set_requires_grad());
  }
  return changed;
}

// A gradient for `y` to start from, exact in float32.
Tensor seed_for(const Tensor& y) {
  std::vector<double> values(static_cast<size_t>(y.numel()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = (i % 2 == 0 ? 1 : -1) * (0.5 + static_cast<double>(i * 37 % 64) / 64);
  }
  return from_vector(values, y.shape(), y.dtype());
}

struct Results {
  std::vector<double> values;
  std::vector<std::vector<double>> gradients;
};

Results results_of(const OpCase& row, const std::vector<Tensor>& inputs,
                   Tensor (*change_seed)(const Tensor&) = nullptr) {
  const Tensor y = row.f(inputs);
  Tensor dy = seed_for(y);
  if (change_seed != nullptr) {
    dy = change_seed(dy);
  }
  Results results{y.to_vector<double>(), {}};
  for (const Tensor& dx : grad({y}, inputs, {dy}, /*retain_graph=*/false, /*allow_unused=*/true)) {
    results.gradients.push_back(dx.defined() ? dx.to_vector<double>() : std::vector<double>());
  }
  return results;
}

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values) {
    most = std::max(most, std::abs(value));
  }
  return most;
}

// Values and gradients come from sums of at most about 100 products of numbers near 1, in any
// order: an error of 100 roundings, each half an epsilon of the largest number that takes part,
// which is about 4 (a product of two normal numbers) or the largest result. Functions such as exp
// add a few epsilons. 64 covers the worst case of such a sum seldom, its random walk
// (sqrt(100) / 2 roundings) many times over; a wrong element is off by 10^4 times that.
constexpr double kRoundings = 64;

void expect_near(const std::vector<double>& got, const std::vector<double>& expected,
                 double epsilon, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  const double tolerance = kRoundings * epsilon * std::max(1.0, largest(expected));
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isfinite(expected[i])) {
      EXPECT_NEAR(got[i], expected[i], tolerance) << what << " at element " << i;
    } else {
      EXPECT_EQ(got[i], expected[i]) << what << " at element " << i;
    }
  }
}

void expect_near(const Results& got, const Results& expected, double epsilon) {
  expect_near(got.values, expected.values, epsilon, "value");
  ASSERT_EQ(got.gradients.size(), expected.gradients.size());
  for (size_t i = 0; i < got.gradients.size(); ++i) {
    expect_near(got.gradients[i], expected.gradients[i], epsilon,
                "gradient of input " + std::to_string(i));
  }
}

constexpr double kEpsilon32 = std::numeric_limits<float>::epsilon();
constexpr double kEpsilon64 = std::numeric_limits<double>::epsilon();

class Row : public testing::TestWithParam<OpCase> {};

TEST_P(Row, Float32AgreesWithFloat64) {
  const std::vector<Tensor> single = make_inputs(GetParam(), kFloat32);
  const std::vector<Tensor> exact =
      leaves(single, [](const Tensor& x) { return x.detach().to(kFloat64); });
  expect_near(results_of(GetParam(), single), results_of(GetParam(), exact), kEpsilon32);
}

TEST_P(Row, StridesDoNotMatter) {
  for (const DType dtype : {kFloat32, kFloat64}) {
    const double epsilon = dtype == kFloat32 ? kEpsilon32 : kEpsilon64;
    const std::vector<Tensor> dense =
        leaves(make_inputs(GetParam(), dtype), [](const Tensor& x) { return x.detach().clone(); });
    const Results expected = results_of(GetParam(), dense);
    expect_near(results_of(GetParam(), dense, restrided), expected, epsilon);
    if (GetParam().name.rfind("view/", 0) != 0) {  // view refuses strides that it cannot keep
      expect_near(results_of(GetParam(), leaves(dense, restrided)), expected, epsilon);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OpCases, Row, testing::ValuesIn(op_cases()), test_name);

}  // namespace
}  // namespace chargrad::tests
