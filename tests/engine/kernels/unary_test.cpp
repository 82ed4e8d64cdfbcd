#include "engine/kernels/unary.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "engine/kernels/chunks.h"
#include "engine/kernels/unary_ref.h"
#include "tests/engine/kernels/kernel_testing.h"

namespace chargrad::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr Unary kAll[] = {Unary::kExp,  Unary::kLog,     Unary::kSqrt,
                          Unary::kTanh, Unary::kSigmoid, Unary::kRelu};

std::vector<float> forward(Unary f, const std::vector<float>& x) {
  Guarded<float> in(x), out(static_cast<int64_t>(x.size()));
  unary_forward(f, in.data(), out.data(), static_cast<int64_t>(x.size()));
  EXPECT_TRUE(out.intact());
  return out.get();
}

std::vector<float> backward(Unary f, const std::vector<float>& saved,
                            const std::vector<float>& dy) {
  Guarded<float> in(saved), up(dy), out(static_cast<int64_t>(dy.size()));
  unary_backward(f, in.data(), up.data(), out.data(), static_cast<int64_t>(dy.size()));
  EXPECT_TRUE(out.intact());
  return out.get();
}

// Floats of both signs and all exponents, subnormals, infinities and NaNs included: every bit
// pattern that is a multiple of a prime of about 1500.
std::vector<float> sweep() {
  std::vector<float> x;
  for (uint64_t bits = 0; bits <= 0xffffffffu; bits += 1511) {
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  return x;
}

double worst_ulps(Unary f, const std::vector<float>& x) {
  const std::vector<float> y = forward(f, x);
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double error = ulps(y[i], ref::unary_value(f, static_cast<double>(x[i])));
    if (error > worst) {
      worst = error;
      EXPECT_LE(error, 10) << "x = " << x[i] << ", got " << y[i];
    }
  }
  return worst;
}

// The bound that math_simd-inl.h states; the plain loop calls the C library, whose own is 3.
double tanh_bound() {
  return active_tier() == Tier::kRef ? 3 : 2;
}

// The bounds that math_simd-inl.h states; no 1 % is within any of them (kernel_testing_test.cpp).
TEST(Unary, AccuracyOverAllExponents) {
  const std::vector<float> x = sweep();
  EXPECT_LE(worst_ulps(Unary::kExp, x), 1);
  EXPECT_LE(worst_ulps(Unary::kLog, x), 1);
  EXPECT_LE(worst_ulps(Unary::kSqrt, x), 0.5);
  EXPECT_LE(worst_ulps(Unary::kTanh, x), tanh_bound());
  EXPECT_LE(worst_ulps(Unary::kSigmoid, x), 3);
  EXPECT_EQ(worst_ulps(Unary::kRelu, x), 0);
}

// Where the functions live: the sweep has few values there.
TEST(Unary, AccuracyInTheMiddle) {
  const std::vector<float> x = random_values<float>(1 << 20, 1, -20, 20);
  EXPECT_LE(worst_ulps(Unary::kExp, x), 1);
  EXPECT_LE(worst_ulps(Unary::kTanh, x), tanh_bound());
  EXPECT_LE(worst_ulps(Unary::kSigmoid, x), 3);
  EXPECT_LE(worst_ulps(Unary::kLog, random_values<float>(1 << 20, 2, 0, 3)), 1);
}

TEST(Unary, EdgeValues) {
  EXPECT_EQ(forward(Unary::kExp, {-kInf, -1000, -0.0f, 0, 1000, kInf}),
            (std::vector<float>{0, 0, 1, 1, kInf, kInf}));
  EXPECT_EQ(forward(Unary::kLog, {0, -0.0f, 1, kInf}), (std::vector<float>{-kInf, -kInf, 0, kInf}));
  EXPECT_TRUE(std::isnan(forward(Unary::kLog, {-1})[0]));
  EXPECT_TRUE(std::isnan(forward(Unary::kLog, {-kInf})[0]));
  EXPECT_EQ(forward(Unary::kTanh, {-kInf, -1000, 0, 1000, kInf}),
            (std::vector<float>{-1, -1, 0, 1, 1}));
  EXPECT_TRUE(std::signbit(forward(Unary::kTanh, {-0.0f})[0]));
  EXPECT_EQ(forward(Unary::kSigmoid, {-kInf, -1000, 0, 1000, kInf}),
            (std::vector<float>{0, 0, 0.5f, 1, 1}));
  EXPECT_EQ(forward(Unary::kRelu, {-kInf, -2, -0.0f, 0, 3, kInf}),
            (std::vector<float>{0, 0, 0, 0, 3, kInf}));
  for (const Unary f : kAll) {
    EXPECT_TRUE(std::isnan(forward(f, {kNaN})[0])) << static_cast<int>(f);
  }
}

TEST(Unary, GradientsVanishWhereFunctionsSaturate) {
  EXPECT_EQ(backward(Unary::kTanh, forward(Unary::kTanh, {-1000, 1000}), {1, 1}),
            (std::vector<float>{0, 0}));
  EXPECT_EQ(backward(Unary::kSigmoid, forward(Unary::kSigmoid, {-1000, 1000}), {1, 1}),
            (std::vector<float>{0, 0}));
  EXPECT_EQ(backward(Unary::kRelu, {0, 2, 0}, {5, 6, kInf}), (std::vector<float>{0, 6, 0}));
}

// The result of an element depends on nothing but its value: not on its place in a vector, nor
// on the length of the array.
TEST(Unary, SameResultAtEveryPlaceAndLength) {
  for (const Unary f : kAll) {
    const std::vector<float> x = random_values<float>(131, 3, 0.1, 4);
    const std::vector<float> dy = random_values<float>(131, 4, -1, 1);
    std::vector<float> y, dx;
    for (size_t i = 0; i < x.size(); ++i) {
      y.push_back(forward(f, {x[i]})[0]);
      dx.push_back(backward(f, {x[i]}, {dy[i]})[0]);
    }
    for (const int64_t n : odd_lengths()) {
      const std::vector<float> part(x.begin(), x.begin() + n), up(dy.begin(), dy.begin() + n);
      EXPECT_TRUE(same_bits(forward(f, part), {y.begin(), y.begin() + n})) << n;
      EXPECT_TRUE(same_bits(backward(f, part, up), {dx.begin(), dx.begin() + n})) << n;
    }
  }
}

TEST(Unary, BackwardAgreesWithDouble) {
  for (const Unary f : kAll) {
    // y of tanh and sigmoid lies in (0, 1).
    const std::vector<float> saved = random_values<float>(131, 5, 0.01, 0.99);
    const std::vector<float> dy = random_values<float>(131, 6, -1, 1);
    std::vector<double> want(saved.size());
    ref::unary_backward(f, to_double(saved).data(), to_double(dy).data(), want.data(), 131);
    // At most three roundings; 1 - y^2 and 1 - y lose up to 1 / 0.01 of a relative rounding.
    EXPECT_TRUE(near(backward(f, saved, dy), want, 2e-7, 3e-7)) << static_cast<int>(f);
  }
}

TEST(Unary, RefGradientIsTheDerivative) {
  for (const Unary f : kAll) {
    const std::vector<double> x = random_values<double>(40, 7, 0.2, 2);
    const std::vector<double> dy = random_values<double>(40, 8, -1, 1);
    const auto value = [&](const std::vector<double>& at) {
      std::vector<double> y(at.size());
      unary_forward(f, at.data(), y.data(), 40);
      return dot(y, dy);
    };
    std::vector<double> y(x.size()), dx(x.size());
    unary_forward(f, x.data(), y.data(), 40);
    unary_backward(f, unary_saves_input(f) ? x.data() : y.data(), dy.data(), dx.data(), 40);
    // Third derivatives up to 2 / 0.2^3 = 250 times h^2 / 6 = 1.7e-11; rounding 1e-16 * 100 / h.
    EXPECT_TRUE(near(dx, central_differences(value, x), 1e-8, 0)) << static_cast<int>(f);
  }
}

TEST(Unary, SameForAllThreadCounts) {
  const std::vector<float> x = random_values<float>(3 * kChunkElements + 17, 9, -3, 3);
  EXPECT_TRUE(same_for_all_thread_counts<float>([&] { return forward(Unary::kTanh, x); }));
  EXPECT_TRUE(same_for_all_thread_counts<float>([&] { return backward(Unary::kTanh, x, x); }));
}

TEST(Unary, InPlace) {
  const std::vector<float> x = random_values<float>(37, 10, -3, 3);
  Guarded<float> y(x);
  unary_forward(Unary::kExp, y.data(), y.data(), 37);
  EXPECT_TRUE(same_bits(y.get(), forward(Unary::kExp, x)));
}

}  // namespace
}  // namespace chargrad::kernels
